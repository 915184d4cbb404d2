"""Records an Event for each time that the log went back (eventlog/positions.py), about the Service ``kubernetes``.

Every server tells what it had applied itself, so servers may name different changes. The Event is written to the log
as it is now, when it takes writes again.
"""

from __future__ import annotations

from typing import Final

import trio

from kubechronicle.actors.loops.event_recorder import EventRecorder
from kubechronicle.actors.loops.retries import RETRIED
from kubechronicle.actors.store import Store
from kubechronicle.eventlog.positions import Loss
from kubechronicle.eventlog.tail import Tail

COMPONENT: Final = "kubechronicle"
REASON: Final = "ChangesLost"
RETRY_DELAY: Final = 2.0  # seconds between attempts to write the Event
ATTEMPTS: Final = 150
LONGEST: Final = 1000  # characters of the message, as Events limit them


class LogLosses:
    """The control loop."""

    def __init__(self, store: Store, tail: Tail) -> None:
        self._store = store
        self._tail = tail
        self._recorder = EventRecorder(store, COMPONENT)
        self._recorded = len(tail.losses)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            lost = self._tail.lost
            while self._recorded < len(self._tail.losses):
                await self._record(self._tail.losses[self._recorded])
                self._recorded += 1
            await lost.wait()

    async def _record(self, loss: Loss) -> None:
        for _ in range(ATTEMPTS):
            try:
                entry = self._store.reads.peek("services", "default", "kubernetes")
                entry = entry or self._store.reads.peek("namespaces", "", "default")
                if entry is not None:
                    await self._recorder.warn(entry, REASON, loss.summary()[:LONGEST])
                    return
            except RETRIED:
                pass
            await trio.sleep(RETRY_DELAY)
