"""The machine of this server: the components beside it, and the files of /var/log."""
