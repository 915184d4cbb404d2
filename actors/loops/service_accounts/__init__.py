"""Control loops for service accounts: default accounts, token Secrets, and the root certificates of pods."""
