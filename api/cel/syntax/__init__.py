"""Syntax: from the text of an expression to its tree, with macros expanded."""
