"""Codecs: JSON, YAML and protobuf bodies, and content negotiation."""
