"""Priority and fairness: the FlowSchema of a request, the seats of priority levels, and fair queues (KEP-1040)."""
