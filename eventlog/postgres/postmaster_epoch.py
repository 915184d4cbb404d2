"""PostmasterEpoch: the number of the current postmaster of the embedded Postgres.

Separate from consistency.py, so that Postgres can be launched before that module is imported.
"""

from __future__ import annotations


class PostmasterEpoch:
    """Counts the postmasters that this process launches; ``begin`` is called before each launch."""

    def __init__(self) -> None:
        self.number = 0

    def begin(self) -> None:
        self.number += 1
