"""`kubechronicle serve`: from settings to a running server, in one process or several."""
