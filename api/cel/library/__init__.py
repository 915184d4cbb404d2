"""Function libraries of CEL: each module has tables of overloads, with the functions that they call."""
