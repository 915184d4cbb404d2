"""The actors: who decides writes, in what order things start and stop, and the store face everyone writes through."""
