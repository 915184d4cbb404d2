"""Durations of the compilation and evaluation of rules, for metrics. The server gives the clock.

As in kube-apiserver, each part of a schema with rules counts on its own, and the rules of policies and match
conditions do not count (apiextensions-apiserver ``pkg/apiserver/schema/cel``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds: the defaults of Prometheus' clients, as in kube-apiserver."""


class Durations:
    """A histogram. ``counts``: by bound, and of longer ones. ``total``: seconds.

    ``clock``: returns seconds; None: nothing is measured. Two threads may add at the same time, and a number be lost.
    """

    __slots__ = ("clock", "counts", "total")

    def __init__(self) -> None:
        self.clock: Callable[[], float] | None = None
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


COMPILATION: Final = Durations()
EVALUATION: Final = Durations()
