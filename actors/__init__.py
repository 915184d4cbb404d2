"""Actors: reads and writes of objects, the actors that decide writes, the supervision tree, and the control loops."""
