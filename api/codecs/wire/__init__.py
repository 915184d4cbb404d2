"""Kubernetes' protobuf messages: the table of fields, and encoders and decoders compiled from it on first use."""
