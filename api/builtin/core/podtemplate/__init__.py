"""Rules of PodTemplate, and those shared by all kinds with a pod template."""
