"""The garbage collector's rules: who owns whom, and what follows from it."""
