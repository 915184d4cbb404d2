"""HTTPS requests of this server to others: webhooks and identity providers."""
