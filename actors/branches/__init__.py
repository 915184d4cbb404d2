"""Branches: overlays of changes over a past or present state, opened on demand, closed when they are idle."""
