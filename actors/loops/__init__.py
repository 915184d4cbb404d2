"""Control loops: actors that compare the current state with the desired one, and write the difference to the store."""
