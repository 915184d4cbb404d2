"""Declarative validation (KEP-5073): the +k8s tags of a kind, compiled into closures that find its causes."""
