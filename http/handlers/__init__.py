"""The handlers, which answer a request at its path after the filters."""
