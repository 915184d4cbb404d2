"""Overviews of many changes for people: what happened, grouped by cause, and the states of many objects over time."""
