"""Patch formats: JSON patch, merge patch, strategic merge patch, and the merge of server-side apply."""
