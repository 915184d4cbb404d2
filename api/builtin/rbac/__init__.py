"""Roles and their bindings, and those every cluster begins with."""
