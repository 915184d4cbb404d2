"""A real node for tests: kubelet, containerd and the rest, built from Go modules, in namespaces of its own."""
