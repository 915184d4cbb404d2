"""Structural types of the built-in kinds, and the check of decoded objects against them."""
