"""Reads of the past: objects as of a moment, revisions as objects, and their density over time."""
