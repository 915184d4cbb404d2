"""What Kubernetes objects are: pure rules and data. No await, clock, randomness or I/O; imports no sibling folder."""
