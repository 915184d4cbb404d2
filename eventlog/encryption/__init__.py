"""Encryption at rest: ciphers and key services, and a log that stores the contents of objects as ciphertext."""
