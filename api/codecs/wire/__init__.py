"""Kubernetes' protobuf messages: the field table, and the functions compiled from it on first use."""
