"""Priority and fairness: which requests run, wait or are rejected, by FlowSchemas and priority levels."""
