"""The databases of a server: those of --database-url-overrides, the agreement about them, their encryption, the units
over each, and the logs of branches."""
