"""A whole cluster on one machine: `kubechronicle up` runs the server, its control plane, and simulated nodes."""
