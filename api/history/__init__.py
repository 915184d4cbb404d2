"""Revisions as objects, differences between states, blame, moments, and plans that restore a past state."""
