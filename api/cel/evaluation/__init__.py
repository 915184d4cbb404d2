"""Evaluation: planning a checked tree into closures, and running them within a cost budget."""
