"""Outside witnesses of the log, as tests run them."""
