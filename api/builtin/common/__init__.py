"""What the rules of many kinds are made of: checks, texts of table cells, Go's ways to print."""
