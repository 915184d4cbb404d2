"""Servers of a release, and bodies of single kinds, for tests of what a kind does."""
