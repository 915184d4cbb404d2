"""Events go a while after they were last written (kube-apiserver's --event-ttl, there a lease of etcd).

When an Event was last written is when its revision was committed, which the log knows. So what is to go is what has a
revision at or below the newest of that long ago, and the clock is the log's, the same for all servers:

    an hour ago: 120     a@17 b@120 goes     c@121, and a rewritten as a@130: stays

As with a lease, finalizers and admission are not asked, and watchers are told DELETED. Each deletion holds only if the
Event is still at its revision; several servers may be at it at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import trio

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import BeforeHistory, LogError

log = logging.getLogger(__name__)

COMPONENT: Final = "event-ttl"
# Seconds between two looks: a minute, or a twentieth of an Event's life if that is shorter, but a second at least. An
# Event may live that much longer. (etcd3: a lease is shared by what is written within a minute, or 5 % of its time.)
LONGEST_INTERVAL: Final = 60.0
SHORTEST_INTERVAL: Final = 1.0
ROUNDS: Final = 20
# Events deleted at once: others' writes wait some 20 ms for it, of 200 twice as long. Then they have the log to
# themselves: for as long as that took, and this long at least. So 600 a second go, two million an hour.
BATCH: Final = 100
PAUSE: Final = 0.1
# Events looked at between two chances for others to run.
PAGE: Final = 1000


class EventExpiry:
    """``ttl``: how long an Event lives after it was last written."""

    def __init__(self, store: Store, ttl: timedelta) -> None:
        self._store = store
        self._ttl = ttl
        rt = store.registry.known("", "v1", "events")
        assert rt is not None, "events are a built-in resource"
        self._resource = rt.resource
        self._view = store.reads.views[rt.resource]
        self._oldest = 0  # no Event is at a lower revision
        self.interval = min(LONGEST_INTERVAL, max(SHORTEST_INTERVAL, ttl.total_seconds() / ROUNDS))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look for Events whose time has come, again and again, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(self.interval)
            try:
                await self.expire()
            except (LogError, ActorError) as error:
                log.warning("Events whose time has come stay for now: %s", error)

    async def expire(self) -> int:
        """Delete all whose time has come, some at once; how many went. LogError, ActorError: the rest is left."""
        due, oldest = await self._due()
        gone, pause = 0, 0.0
        for start in range(0, len(due), BATCH):
            await trio.sleep(pause)
            begun = trio.current_time()
            gone += await self._delete(due[start : start + BATCH])
            pause = max(PAUSE, trio.current_time() - begun)
        if gone == len(due):
            self._oldest = oldest
        return gone

    async def _due(self) -> tuple[Sequence[Entry], int]:
        """Those that are to go, the oldest first; the lowest revision that any other, and any to come, may have."""
        if not self._view.count():
            return (), self._oldest
        until = await self._written_until()
        if until < self._oldest:
            return (), self._oldest
        oldest = self._store.reads.applied + 1
        due: list[Entry] = []
        after: tuple[str, str] | None = None
        while page := self._view.page("", after, PAGE):
            due += [entry for entry in page if entry.revision <= until]
            oldest = min((entry.revision for entry in page if until < entry.revision < oldest), default=oldest)
            after = page[-1].key[1:]
            await trio.lowlevel.checkpoint()
        due.sort(key=lambda entry: entry.revision)
        return due, oldest

    async def _written_until(self) -> int:
        """The newest revision that is so old that an Event at it is to go; 0: none is."""
        try:
            return (await self._store.reads.log.revision_at(self._ttl)).revision
        except BeforeHistory as error:
            if error.oldest is None or error.oldest.revision <= 1:
                return 0  # the first change of all is younger
            return await self._forgotten_until(error.oldest.revision)

    async def _forgotten_until(self, oldest: int) -> int:
        """The same where history was forgotten sooner than Events are to go, of those below its ``oldest`` revision.
        The row of what exists is kept, and tells when it was written; revisions are in the order of times."""
        reads = self._store.reads
        older = sorted((entry.revision, entry.key) for entry in self._view.entries() if entry.revision < oldest)
        if not older:
            return 0
        due_since = (await reads.log.revision_at(timedelta())).time - self._ttl
        low, high = 0, len(older)
        while low < high:
            middle = (low + high) // 2
            revision, key = older[middle]
            record = await reads.log.get_at(key, revision=max(reads.applied, oldest))
            if record is not None and record.revision == revision and record.committed_at <= due_since:
                low = middle + 1
            else:
                high = middle
        return older[low - 1][0] if low else 0

    async def _delete(self, entries: Sequence[Entry]) -> int:
        """Delete them, each as it is or not at all; how many went."""
        caller = system_caller(COMPONENT, "delete")
        gone = 0
        failures: list[LogError | ActorError] = []

        async def delete(entry: Entry) -> None:
            nonlocal gone
            try:
                if await self._store.writes.commit_own_changes(
                    caller, (CompanionChange(key=entry.key, old=entry, object=None),)
                ):
                    gone += 1
            except (LogError, ActorError) as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:  # at once: they commit as one batch
            for entry in entries:
                now = self._store.reads.peek(*entry.key)
                if now is not None and now.revision == entry.revision:  # not rewritten meanwhile
                    nursery.start_soon(delete, entry)
        if failures:
            raise failures[0]
        return gone
