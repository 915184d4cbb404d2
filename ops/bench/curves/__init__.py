"""Scaling curves by the length of the log: ``python -m kubechronicle.ops.bench.curves`` (``make bench-curves``)."""
