"""Devices: classes of them, claims to them, and the slices drivers offer."""
