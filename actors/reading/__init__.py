"""Get, list and watch over the views, and over the log for the past."""
