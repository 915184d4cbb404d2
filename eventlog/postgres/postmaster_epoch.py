"""Which postmaster may be there. Apart from sole.py, so that the database can be launched before that is imported."""

from __future__ import annotations


class PostmasterEpoch:
    """Counts the postmasters that this process launches; ``begin`` comes before each."""

    def __init__(self) -> None:
        self.number = 0

    def begin(self) -> None:
        self.number += 1
