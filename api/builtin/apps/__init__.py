"""Deployments, ReplicaSets, StatefulSets, DaemonSets and ControllerRevisions."""
