"""Label selectors and field selectors: parsing, matching, and the fields that each kind offers."""
