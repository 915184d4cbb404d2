"""Expiry of Events a fixed time after their last write (kube-apiserver's --event-ttl, there a lease of etcd).

The log knows when each revision was committed. So the expired Events are those at or below the newest revision that is
as old as the TTL. The log's clock counts, the same for all servers:

    an hour ago: 120     a@17 b@120: expired     c@121, and a rewritten as a@130: kept

As with a lease, finalizers and admission are skipped, and watchers receive DELETED. A deletion fails if the Event is no
longer at its revision, so several servers may expire Events at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import trio

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.reading.selection import in_turns
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import BeforeHistory, LogError
from kubechronicle.eventlog.records import Key

log = logging.getLogger(__name__)

COMPONENT: Final = "event-ttl"
# Seconds between two passes: a minute, or TTL / ROUNDS if that is shorter, but a second at least. An Event may live
# longer by that much. (etcd3: objects written within a minute, or 5 % of the TTL, share a lease.)
LONGEST_INTERVAL: Final = 60.0
SHORTEST_INTERVAL: Final = 1.0
ROUNDS: Final = 20
# Events deleted at once. Other writes wait some 20 ms for a batch of 100, twice as long for one of 200.
BATCH: Final = 100
# Minimum pause in seconds between two batches; otherwise as long as the last batch took. So 600 Events a second expire,
# two million an hour.
PAUSE: Final = 0.1
# Events examined between two checkpoints.
PAGE: Final = 1000


class EventExpiry:
    """``ttl``: the lifetime of an Event after its last write."""

    def __init__(self, store: Store, ttl: timedelta) -> None:
        self._store = store
        self._ttl = ttl
        events = store.registry.builtin("", "v1", "events").resource
        self._reads = store.reads.of(events)
        self._view = self._reads.views[events]
        self._oldest = 0  # no Event is at a lower revision
        self.interval = min(LONGEST_INTERVAL, max(SHORTEST_INTERVAL, ttl.total_seconds() / ROUNDS))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Delete expired Events every ``interval`` seconds until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(self.interval)
            try:
                await self.expire()
            except (LogError, ActorError) as error:
                log.warning("expired Events are kept for now: %s", error)

    async def expire(self) -> int:
        """Delete all expired Events in batches. Return their number. LogError, ActorError: the rest is kept."""
        expired, oldest = await self._expired()
        deleted, pause = 0, 0.0
        for start in range(0, len(expired), BATCH):
            await trio.sleep(pause)
            begun = trio.current_time()
            deleted += await self._delete(expired[start : start + BATCH])
            pause = max(PAUSE, trio.current_time() - begun)
        if deleted == len(expired):
            self._oldest = oldest
        return deleted

    async def _expired(self) -> tuple[Sequence[Entry], int]:
        """Return the expired Events, the oldest first, and the lowest revision that other Events may have."""
        if not self._view.count():
            return (), self._oldest
        until = await self._written_until()
        if until < self._oldest:
            return (), self._oldest
        oldest = self._reads.applied + 1
        expired: list[Entry] = []
        after: tuple[str, str] | None = None
        while page := self._view.page("", after, PAGE):
            expired += [entry for entry in page if entry.revision <= until]
            oldest = min((entry.revision for entry in page if until < entry.revision < oldest), default=oldest)
            after = page[-1].key[1:]
            await trio.lowlevel.checkpoint()
        expired.sort(key=lambda entry: entry.revision)
        return expired, oldest

    async def _written_until(self) -> int:
        """Return the newest revision at which an Event is expired; 0: none is."""
        try:
            return (await self._reads.log.revision_at(self._ttl)).revision
        except BeforeHistory as error:
            if error.oldest is None or error.oldest.revision <= 1:
                return 0  # the first change in the log is younger
            return await self._written_until_before(error.oldest.revision)

    async def _written_until_before(self, oldest: int) -> int:
        """Return the same for Events below the ``oldest`` revision of the retained history. The rows of existing Events
        are retained with their time, and revisions are in the order of times."""
        reads = self._reads
        keys: dict[int, Key] = {}
        async for part in in_turns(self._view.entries()):
            keys.update((entry.revision, entry.key) for entry in part if entry.revision < oldest)
        older = sorted(keys)
        if not older:
            return 0
        due_since = (await reads.log.revision_at(timedelta())).time - self._ttl
        low, high = 0, len(older)
        while low < high:
            middle = (low + high) // 2
            revision = older[middle]
            record = await reads.log.get_at(keys[revision], revision=max(reads.applied, oldest))
            if record is not None and record.revision == revision and record.committed_at <= due_since:
                low = middle + 1
            else:
                high = middle
        return older[low - 1] if low else 0

    async def _delete(self, entries: Sequence[Entry]) -> int:
        """Delete the Events that are unchanged. Return their number."""
        deleted = 0
        failures: list[LogError | ActorError] = []

        async def delete(entry: Entry) -> None:
            nonlocal deleted
            try:
                if await self._store.writes.commit_own_changes(
                    system_caller(COMPONENT, "delete", cause=entry.revision),
                    (CompanionChange(key=entry.key, old=entry, object=None),),
                ):
                    deleted += 1
            except (LogError, ActorError) as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:  # concurrently: they commit as one batch
            for entry in entries:
                now = self._store.reads.peek(*entry.key)
                if now is not None and now.revision == entry.revision:  # not rewritten since
                    nursery.start_soon(delete, entry)
        if failures:
            raise failures[0]
        return deleted
