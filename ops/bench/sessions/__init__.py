"""Sessions with containers: CPU for their bytes, and the latency of others (``ops.bench.sessions``)."""
