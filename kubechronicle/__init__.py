"""kubechronicle: a Kubernetes API server on an append-only Postgres revision log."""
