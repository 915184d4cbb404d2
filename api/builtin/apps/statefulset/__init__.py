"""Rules of StatefulSet."""
