"""Simulation: loops that keep simulated nodes, bind pods to nodes, and lead nodes and pods through Stages."""
