"""Rules of Pod, a file for each of its large parts."""
