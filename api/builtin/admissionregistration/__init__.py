"""Webhook configurations, admission policies and their bindings."""
