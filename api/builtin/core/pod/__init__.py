"""Rules of Pod."""
