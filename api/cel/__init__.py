"""The Common Expression Language as Kubernetes offers it: parser, checker, closures, and a counter of what it costs."""
