"""Access reviews and rules reviews, which are not stored."""
