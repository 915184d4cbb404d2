"""The pure steps of a write: decode, convert, default, patch, apply, prepare, delete."""
