"""What the server serves, told as OpenAPI: a v3 document per group-version, and one v2 document of everything."""
