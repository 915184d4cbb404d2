"""Servers for tests: the log in memory, forks of one prepared process, and a reset to a marked state."""
