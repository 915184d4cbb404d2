"""The program behind `kubectl chronicle`: commands that answer questions about history through a server's API."""
