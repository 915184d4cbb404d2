"""Sessions between a client and a container: exec, attach and port-forward."""
