"""Control loops that come with a feature gate of kube-apiserver: elections, and reports of stored versions."""
