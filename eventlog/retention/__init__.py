"""Compaction, dropping and archiving of old history, and its status."""
