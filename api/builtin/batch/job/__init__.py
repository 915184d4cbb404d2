"""Rules of Job."""
