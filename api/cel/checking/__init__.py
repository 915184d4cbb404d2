"""Checking: types of every part of a tree, and validators that reject well-typed but unusable expressions."""
