"""Admission by others: which webhooks and policies a write matches, the reviews sent to webhooks, and their answers."""
