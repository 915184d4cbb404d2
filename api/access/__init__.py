"""Rules of access: RBAC, tokens of service accounts in Secrets, and the objects a Pod refers to."""
