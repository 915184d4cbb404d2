"""Aggregation: API groups of other servers, reached through Services: routes, proxying, documents, checks."""
