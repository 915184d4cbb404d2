"""The benchmark: ``python -m kubechronicle.ops.bench`` (``make bench``), and measurements of single costs."""
