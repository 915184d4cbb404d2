"""Function libraries of CEL: each module has a table `LIBRARY` of overloads, with the functions they call."""
