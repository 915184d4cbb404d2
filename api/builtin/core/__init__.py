"""The kinds of the core group: a folder for each with many rules, the others in the files beside them."""
