"""Optional plugins for pods: images, affinity, tolerations, node selectors; and checks of updates by their nodes."""
