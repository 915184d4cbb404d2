"""Control loops: actors that compare what is with what should be, and write the difference through the store face."""
