"""Kinds of the core group: a file each, and a folder for Pod and Service."""
