"""One log for several processes of a server: one process follows it and appends for all."""
