"""PostmasterEpoch: the number of the current postmaster of the embedded Postgres.

Separate from consistency.py, so that Postgres can be launched before that module is imported.
"""

from __future__ import annotations

from collections.abc import Callable


class PostmasterEpoch:
    """Counts the postmasters that this process launches; ``begin`` is called before each launch.

    ``on_begin``: called by it, for what must not outlive a postmaster.
    """

    def __init__(self) -> None:
        self.number = 0
        self.on_begin: Callable[[], None] = lambda: None

    def begin(self) -> None:
        self.number += 1
        self.on_begin()
