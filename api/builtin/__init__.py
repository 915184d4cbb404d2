"""The built-in kinds as data tables and small functions."""
