"""Queries of history, as records that both logs evaluate."""
