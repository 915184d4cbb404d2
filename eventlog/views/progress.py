"""Progress: the applied revision, and the tasks that wait until it reaches theirs."""

from __future__ import annotations

import trio


class Progress:
    """``applied``: everything up to this revision is in the views."""

    __slots__ = ("_waiting", "applied")

    def __init__(self) -> None:
        self.applied = 0
        self._waiting: dict[int, trio.lowlevel.ParkingLot] = {}

    def advance(self, revision: int) -> None:
        self.applied = revision
        for reached in [awaited for awaited in self._waiting if awaited <= revision]:
            self._waiting.pop(reached).unpark_all()

    async def wait(self, revision: int) -> None:
        """Return when everything up to the revision is applied."""
        while self.applied < revision:
            tasks = self._waiting.get(revision)
            if tasks is None:
                tasks = self._waiting[revision] = trio.lowlevel.ParkingLot()
            try:
                await tasks.park()
            finally:
                if not tasks and self._waiting.get(revision) is tasks:
                    del self._waiting[revision]
