"""Rules of ResourceSlice."""
