"""Costs: the run-time costs of standard calls, and the worst-case estimate of a whole expression."""
