"""The workload kinds: a folder each for Deployment, StatefulSet and DaemonSet."""
