"""Explanations of the state of an object: its symptoms, the changes that may have caused them, and their causes."""
