"""Custom resources: the compiled versions of a definition: schema, rules, types."""
