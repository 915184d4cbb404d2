"""WebSocket conversations, carried by Hypercorn."""
