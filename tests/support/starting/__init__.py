"""Servers of tests that start fast: forks of a process that has imported all modules, on copies of a new cluster."""
