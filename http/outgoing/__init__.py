"""Questions this server asks of others: of webhooks and identity providers, over HTTPS."""
