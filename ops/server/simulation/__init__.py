"""The simulation of nodes and pods in the server: its settings, the Stages of pods and nodes, and its loops."""
