"""The tail: applies the log to the views in revision order. The only writer of the views.

No decisions about objects here. Records come by two ways: our own batches straight from memory when they follow the
applied revision, everything else by reading the log after the applied revision. Both end in ``_apply``, which skips
what is applied already, so it does not matter which way is faster:

    applied 5; another replica commits 6, we commit 7: our batch does not follow, read 6..7
    applied 5; a read of 6..7 is under way, we commit 8: read 6..8, or 6..7 and again 8

Invariant: records are applied in revision order without a gap; a gap is LogCorrupt and ends the server, because an
answer from views with a hole would be a lie. A database that does not answer ends nothing: the views stay, ``healthy``
turns False, and reading is tried again until it works.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from itertools import chain
from typing import Any, cast

import trio

from kubechronicle.eventlog.backoff import delays
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import Compacted, FutureRevision, LogCorrupt, LogError, LogUnavailable
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import BatchResult, Head, Record
from kubechronicle.eventlog.views.views import Views

READ_CHUNK = 1000
"""Records read and applied at once: bounds memory (a few MB) and how long other tasks wait (about 20 ms)."""


class Tail:
    """See the head of this file. ``run`` must be running for anything but ``views`` to move."""

    def __init__(self, log: RevisionLog, views: Views) -> None:
        self.views = views
        self.last_error: LogError | None = None
        self._log = log
        self._loaded = False
        self._wanted = 0  # a revision known to be committed
        self._kicked = trio.Event()
        views.read_history = log.read_resource

    @property
    def healthy(self) -> bool:
        """Loaded, and the log answered when last asked (then ``last_error`` is None)."""
        return self._loaded and self.last_error is None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load, report started, and follow the log until cancelled. Raises LogCorrupt, in an exception group."""
        await self._load()
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            nursery.start_soon(self.views.dispatcher.run)
            await self._follow()

    # For the appender and readers

    async def apply(self, result: BatchResult) -> None:
        """Return when the views hold everything up to the batch's head. What this batch committed is taken from the
        result if nothing is missing before it, and read from the log otherwise."""
        if self._loaded and result.first <= self.views.applied + 1:
            committed = (outcome for outcome in result.outcomes if isinstance(outcome, tuple))
            self._apply(list(chain.from_iterable(committed)))
        await self.reach(result.head)

    async def reach(self, revision: int) -> None:
        """Return when the views hold everything up to the revision, which is known to be committed."""
        if self.views.applied < revision:
            self._wanted = max(self._wanted, revision)
            self._kicked.set()
        await self.views.wait_applied(revision)

    async def reach_asked(self, revision: int, *, deadline: float = math.inf) -> None:
        """As ``reach``, for a revision that a client named. FutureRevision if it is not there by the deadline."""
        if self.views.applied >= revision:
            return
        self._kicked.set()
        with trio.move_on_at(deadline):
            await self.views.wait_applied(revision)
        if self.views.applied < revision:
            raise FutureRevision(revision, self.views.applied)

    def learn(self, head: Head) -> None:
        """A head as committed at some time: what it says to be compacted leaves the memory too."""
        self.views.forget(head)

    # The loop

    async def _listen(self) -> None:
        while True:
            await self._log.wait_notified()
            self._kicked.set()

    async def _follow(self) -> None:
        while True:
            await self._kicked.wait()
            self._kicked = trio.Event()
            for pause in delays():
                if await self._caught_up():
                    break
                await trio.sleep(pause)

    async def _caught_up(self) -> bool:
        """Read until nothing is missing; False if the log did not answer."""
        try:
            await self._catch_up()
        except LogUnavailable as error:
            self.last_error = error
            return False
        except Compacted:  # we were away for so long that what we missed is gone: begin with the present state
            await self._load()
        self.last_error = None
        return True

    async def _catch_up(self) -> None:
        """Ask for records until there are none, then for the head: it tells that none is missing, and what has been
        compacted."""
        committed = self._wanted
        while True:
            before = self.views.applied
            records = await self._log.read(after=before, limit=READ_CHUNK)
            if any(record.erased for record in records):  # no view is to hold a tombstone: begin with the present state
                raise Compacted(before, records[-1].revision)
            self._apply(records)
            if not records and committed > self.views.applied:
                raise LogCorrupt(f"revision {committed} is committed, but nothing follows {self.views.applied}")
            if len(records) == READ_CHUNK:
                continue
            if records and self.views.applied >= self._wanted:
                return
            before = self.views.applied
            head = await self._log.head()
            if head.revision < before:
                raise LogCorrupt(f"the log ends at revision {head.revision}, but {before} had been committed")
            self.learn(head)
            committed = max(head.revision, self._wanted)
            if committed <= self.views.applied:
                return

    def _apply(self, records: Sequence[Record]) -> None:
        """Apply those that are not yet."""
        applied = self.views.applied
        if records and records[0].revision <= applied:
            records = [record for record in records if record.revision > applied]
        self.views.apply(records)

    # Loading

    async def _load(self) -> None:
        """Take over all live objects; tried until it works."""
        for pause in delays():
            try:
                head, entries = await self._read_everything()
                break
            except LogUnavailable as error:
                self.last_error = error
                await trio.sleep(pause)
        if not self._loaded or head.revision > self.views.applied:
            self.views.load(entries, head)
        self.learn(head)
        self._loaded, self.last_error = True, None

    async def _read_everything(self) -> tuple[Head, dict[str, list[Entry]]]:
        head = Head(revision=0, compacted=0)
        entries: defaultdict[str, list[Entry]] = defaultdict(list)
        # The contract says AsyncIterator; both logs write it as a generator, which must be closed by its own task.
        async with aclosing(cast(Any, self._log.load())) as chunks:
            async for loaded_head, records in chunks:
                head = loaded_head
                for record in records:
                    entries[record.key.resource].append(self.views.describe_record(record))
        return head, dict(entries)
