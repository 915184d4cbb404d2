"""The numbers of work queues, noted as cheaply as possible, and read for metrics (``workqueue_*``)."""

from __future__ import annotations

from typing import Final

import trio

from kubechronicle.eventlog.measures import Histogram

BOUNDS: Final = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)


class QueueMeasures:
    """The numbers of a loop's queues, for metrics. A restarted loop makes another queue, and the numbers go on.

    ``queued``, ``worked``: seconds that keys waited and were in process.
    ``waiting``, ``in_process``: when the present keys were added and taken.
    """

    def __init__(self) -> None:
        self.adds = self.retries = 0
        self.queued, self.worked = Histogram(BOUNDS), Histogram(BOUNDS)
        self.waiting: dict[object, float] = {}
        self.in_process: dict[object, float] = {}

    def restart(self) -> None:
        """Forget the keys of a former queue."""
        self.waiting.clear()
        self.in_process.clear()

    def added(self, key: object) -> None:
        self.adds += 1
        self.waiting[key] = trio.current_time()

    def taken(self, key: object) -> None:
        now = self.in_process[key] = trio.current_time()
        self.queued.add(now - self.waiting.pop(key, now))

    def given_back(self, key: object) -> None:
        now = trio.current_time()
        self.worked.add(now - self.in_process.pop(key, now))
