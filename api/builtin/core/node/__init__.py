"""Rules of Node."""
