"""Streams between a client and a node: WebSocket and SPDY/3.1 framing, and the sessions that they carry."""
