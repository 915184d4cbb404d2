"""Structural schemas of custom resources, compiled once: defaults, pruning, embedded metadata, validation."""
