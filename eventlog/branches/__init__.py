"""The log of one branch, as a RevisionLog over the base in the main log, and its tail."""
