"""Collectors of metrics whose numbers other parts hold: read at each request for /metrics."""
