"""Building blocks for the rules of many kinds: value checks, cell texts, version conversion, Go's print formats."""
