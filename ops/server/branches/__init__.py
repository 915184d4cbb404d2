"""Branches in a running server: the parts of an open one, and the rules that it shares with the server."""
