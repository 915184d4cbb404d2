"""Configuration files of the API server, decoded as strictly as kube-apiserver decodes them."""
