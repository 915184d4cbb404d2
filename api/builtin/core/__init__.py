"""Kinds of the core group: a folder for each kind with many rules, the others in the files beside the folders."""
