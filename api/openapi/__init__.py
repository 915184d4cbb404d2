"""OpenAPI documents of the served resources: a v3 document per group-version, and one v2 document of everything."""
