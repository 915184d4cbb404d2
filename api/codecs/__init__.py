"""Codecs: JSON, YAML, protobuf and CBOR bodies, and content negotiation."""
