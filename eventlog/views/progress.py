"""Progress: the applied revision, and the tasks that wait until it reaches theirs."""

from __future__ import annotations

import trio

from kubechronicle.eventlog.errors import Diverged


class ViewProgress:
    """``applied``: everything up to this revision is in the views. ``restarts``: how often it went back."""

    __slots__ = ("_waiting", "applied", "restarts")

    def __init__(self) -> None:
        self.applied = 0
        self.restarts = 0
        self._waiting: dict[int, trio.lowlevel.ParkingLot] = {}

    def advance(self, revision: int) -> None:
        self.applied = revision
        for reached in [awaited for awaited in self._waiting if awaited <= revision]:
            self._waiting.pop(reached).unpark_all()

    def restart(self, revision: int) -> None:
        """Begin anew at the revision, which may be lower. Tasks that wait for a revision get Diverged."""
        self.restarts += 1
        self.applied = revision
        waiting, self._waiting = self._waiting, {}
        for tasks in waiting.values():
            tasks.unpark_all()

    async def wait(self, revision: int) -> None:
        """Return when everything up to the revision is applied. Diverged: the log went back meanwhile."""
        restarts = self.restarts
        while self.applied < revision:
            tasks = self._waiting.get(revision)
            if tasks is None:
                tasks = self._waiting[revision] = trio.lowlevel.ParkingLot()
            try:
                await tasks.park()
            finally:
                if not tasks and self._waiting.get(revision) is tasks:
                    del self._waiting[revision]
            if self.restarts != restarts:  # even if a revision of this number exists: it is another one
                raise Diverged(revision, self.applied)
