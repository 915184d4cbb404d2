"""Roles and their bindings, including those that every cluster has from its first start."""
