"""ReplicaSets and ControllerRevisions, and a folder each for Deployment, StatefulSet and DaemonSet."""
