"""The rules of DaemonSet."""
