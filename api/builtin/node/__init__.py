"""RuntimeClasses."""
