"""Structural types of the built-in kinds, and the one walk that checks a decoded object against them."""
