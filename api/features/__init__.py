"""The version of Kubernetes that the server emulates, and the feature gates of that version."""
