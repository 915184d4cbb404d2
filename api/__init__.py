"""The rules of Kubernetes objects: pure functions and data tables. No await, clock, randomness or I/O."""
