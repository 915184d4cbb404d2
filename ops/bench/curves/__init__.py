"""Scaling curves, along the length of the log and five other axes: ``python -m kubechronicle.ops.bench.curves``."""
