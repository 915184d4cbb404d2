"""How the server scales: ``python -m kubechronicle.ops.bench.curves`` (``make bench-curves``)."""
