"""RepairLoop: the common part of the loops that repair the addresses and ports of Services."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import trio

from kubechronicle.actors.allocation.metrics import RepairMetrics
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.loops.event_recorder import EventRecorder
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.retries import repeat_pass
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.eventlog.entries import Entry

# Seconds between two passes (kube-apiserver: the repair interval of service addresses).
INTERVAL = 180.0


class RepairLoop(ABC):
    """A pass every INTERVAL seconds. ``ready``: one has succeeded, and the server may be ready."""

    def __init__(self, store: Store, component: str) -> None:
        self._store = store
        self._component = component
        self._recorder = EventRecorder(store, component)
        self.metrics = RepairMetrics()
        self.ready = False

    @abstractmethod
    async def check_all(self) -> None:
        """Check every object, and repair what differs. StatusError, LogError, ActorError."""

    def reflectors(self) -> Iterable[Reflector]:
        """Return the reflectors that call back between two passes, if any."""
        return ()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check until cancelled. Report started after the first attempt."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._check_regularly)
            task_status.started()
            for reflector in self.reflectors():
                nursery.start_soon(reflector.run)

    async def _check_regularly(self, *, task_status: trio.TaskStatus[None]) -> None:
        await repeat_pass(
            self._pass,
            subject=self._component,
            interval=INTERVAL,
            on_error=self.count_failure,
            task_status=task_status,
        )

    async def _pass(self) -> None:
        await self.check_all()
        self.ready = True

    def count_failure(self, _: Exception) -> None:
        """Count a check that failed with an error that is retried."""
        self.metrics.failures += 1

    async def report(self, entry: Entry, error: str, reason: str, message: str, action: str = "") -> None:
        """Count an error and record an Event about the object."""
        self.metrics.errors[error] += 1
        await self._recorder.warn(entry, reason, message, action=action)

    async def commit(self, change: CompanionChange, *, cause: int) -> None:
        """Commit the change unless the object has changed in the meantime; then it is checked again later.

        ``cause``: as in loops/causes.py.
        """
        caller = system_caller(self._component, "update", cause=cause)
        await self._store.writes.commit_own_changes(caller, [change])
