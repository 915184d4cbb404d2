"""The databases of a server: those of --database-url-overrides, the agreement about them, their comparison, and the
units over each."""
