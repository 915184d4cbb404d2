"""Answers to what people ask of history, from a running server by its API: `kubectl chronicle …`, `kubechronicle …`."""
