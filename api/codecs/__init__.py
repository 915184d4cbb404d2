"""Between bytes and objects: JSON, YAML, protobuf, and the choice among them."""
