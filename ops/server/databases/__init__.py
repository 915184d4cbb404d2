"""The databases of a server: those of --database-url-overrides, the agreement about them, and the units over each."""
