"""Moving in from another cluster: `kubechronicle import`, from a running API server or from an etcd snapshot."""
