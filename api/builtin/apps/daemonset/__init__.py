"""Rules of DaemonSet."""
