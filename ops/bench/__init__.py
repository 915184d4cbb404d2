"""The benchmark: ``python -m kubechronicle.ops.bench`` (``make bench``)."""
