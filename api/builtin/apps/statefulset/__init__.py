"""The rules of StatefulSet."""
