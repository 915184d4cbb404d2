"""PodSecurity: the Pod Security Standards, and the plugin that applies them to pods."""
