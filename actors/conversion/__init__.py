"""Conversion of custom objects by webhooks: for rules and answers that need another version than the stored one."""
