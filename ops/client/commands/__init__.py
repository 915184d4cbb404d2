"""One module per command, with the command's name; dispatch.py describes their interface."""
