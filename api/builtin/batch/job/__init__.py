"""The rules of Job."""
