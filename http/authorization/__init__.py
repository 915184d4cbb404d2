"""Authorization of requests: the authorizers, their chain and configuration, and impersonation."""
