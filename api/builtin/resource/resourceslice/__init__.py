"""The rules of ResourceSlice."""
