"""Admission: what may still change or refuse a write after authorization and before it is decided."""
