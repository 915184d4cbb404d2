"""Rules of Service."""
