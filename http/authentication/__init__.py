"""Authentication of requests: a chain of authenticators, of which the first that recognises the credential decides.

A wrong credential is answered with 401, never treated as anonymous. No authenticator logs or stores a credential.
"""
