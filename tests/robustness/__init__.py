"""Robustness: clients, faults and checks of histories; ``make robustness`` runs it (docs/reliability.md)."""
