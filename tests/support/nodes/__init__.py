"""Stand-ins for what runs on nodes."""
