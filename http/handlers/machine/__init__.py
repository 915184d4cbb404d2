"""What this server knows of its own machine: the components beside it, and the files of /var/log."""
