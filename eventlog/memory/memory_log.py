"""MemoryLog: a RevisionLog in memory, for servers of tests (ops/ephemeral), and with injected faults for our own tests.

It satisfies the contract of log.py as PostgresLog does; the same contract suite runs against both. Several MemoryLogs
may share one MemoryStore, as several replicas share one database:

    store = MemoryStore()
    ours, theirs = MemoryLog(store), MemoryLog(store)

Faults: ``fail_next`` scripts faults of the next calls. ``hold`` stops calls at a named point until their release.
``store.deliver_straggler`` lets a transaction that was cut off in flight arrive after all.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile

import trio

from kubechronicle.eventlog.availability import Availability
from kubechronicle.eventlog.errors import LogUnavailable, NotSoleAppender, OutcomeUnknown
from kubechronicle.eventlog.log import Claim
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.positions import Position, RowIdentity
from kubechronicle.eventlog.queries.changes import ChangeQuery, Chunk, bounded, pair_size, record_size, within_history
from kubechronicle.eventlog.queries.density import Count, DensityQuery, counted
from kubechronicle.eventlog.queries.groups import ChangeGroup, GroupQuery, grouped
from kubechronicle.eventlog.queries.states import StatePair, merged, state_size
from kubechronicle.eventlog.records import (
    Batch,
    BatchResult,
    Head,
    Key,
    Moment,
    Record,
)

# -- faults ------------------------------------------------------------------------------------------------------------
#
# Faults of the log in memory for tests: scripted errors, and gates at named points.


class Fault(enum.Enum):
    """The fault of one scripted call."""

    UNAVAILABLE = "the database does not answer; nothing happens"
    LOST_BEFORE_COMMIT = "the connection breaks after sending, and the server drops the transaction"
    LOST_AFTER_COMMIT = "the transaction commits, then the connection breaks before the answer"
    LOST_IN_FLIGHT = "the connection breaks, and the transaction may still arrive: see deliver_straggler"


class FaultGate:
    """Stops calls at a held point until ``release``."""

    def __init__(self) -> None:
        self._released = trio.Event()
        self._arrived = trio.Event()
        self.arrivals = 0

    async def wait_arrived(self) -> None:
        """Return when at least one call has reached the point."""
        await self._arrived.wait()

    def release(self) -> None:
        self._released.set()

    async def pass_through(self) -> None:
        self.arrivals += 1
        self._arrived.set()
        await self._released.wait()


class FaultInjection:
    """The part of MemoryLog that fails and delays its calls."""

    def __init__(self) -> None:
        self.calls: defaultdict[str, int] = defaultdict(int)
        """How often each call was made, for tests that count round trips."""
        self._script: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._gates: dict[str, FaultGate] = {}

    def fail_next(self, call: str, *faults: Fault) -> None:
        """Let the next calls of this name meet these faults, one each: ``append``, ``settle``, ``head``, ``read``,
        ``read_resource``, ``load``, ``get_at``, ``list_at``, …"""
        self._script[call].extend(faults)

    @contextmanager
    def hold(self, point: str) -> Iterator[FaultGate]:
        """Stop calls at the point within the block.

        A call's name is the point before its effect. ``append.committed``, ``head.read`` and ``read.read`` are the
        points between effect and return.
        """
        gate = self._gates[point] = FaultGate()
        try:
            yield gate
        finally:
            gate.release()
            del self._gates[point]

    async def _enter(self, call: str) -> Fault | None:
        self.calls[call] += 1
        await trio.lowlevel.checkpoint()
        await self._reach(call)
        fault = self._script[call].popleft() if self._script[call] else None
        if fault is Fault.UNAVAILABLE:
            raise LogUnavailable(f"scripted: {call} found no database")
        return fault

    async def _reach(self, point: str) -> None:
        gate = self._gates.get(point)
        if gate is not None:
            await gate.pass_through()


# -- claims ------------------------------------------------------------------------------------------------------------
#
# MemoryClaims: the claim of log.py to append alone, in memory, and faults of it for tests.


class MemoryClaims(FaultInjection):
    """A part of MemoryLog. Tests break its connection with ``disconnect``, and prevent claims with
    ``shared_appenders``."""

    store: MemoryStore

    def __init__(self) -> None:
        super().__init__()
        self.newest_seen_revision = 0
        self.shared_appenders = 0
        self._connection = 0
        self._claim_in_doubt = trio.Event()

    async def claim(self) -> Claim | None:
        await self._enter("claim")
        if self.shared_appenders or self.store.sole not in (None, self):
            if self.store.sole is self:
                self.store.sole = None
            return None
        self.store.sole = self
        head, connection = self.store.head(), self._connection
        self.newest_seen_revision = max(self.newest_seen_revision, head.revision)
        return Claim(head, lambda: self._connection == connection)

    async def wait_claim_in_doubt(self) -> None:
        await self._claim_in_doubt.wait()
        self._claim_in_doubt = trio.Event()

    def check_may_append(self) -> None:
        if self.store.sole not in (None, self):
            raise NotSoleAppender("another server alone appends to this log")

    # Faults

    def doubt_claim(self) -> None:
        """Let ``wait_claim_in_doubt`` return."""
        self._claim_in_doubt.set()

    def disconnect(self) -> None:
        """Lose the connection that made the claim; the claim stays in the store."""
        self._connection += 1


# -- memory log --------------------------------------------------------------------------------------------------------

LOAD_CHUNK = 500  # records per chunk of load(): small, so that tests see several chunks


class MemoryLog(MemoryClaims):
    """One replica's connection to a MemoryStore; satisfies RevisionLog.

    ``poll_interval``: seconds after which ``wait_notified`` returns without a notification. The default is never, so
    that a test with ``autojump_clock`` does not loop.
    """

    def __init__(self, store: MemoryStore | None = None, *, poll_interval: float = math.inf) -> None:
        self.store = MemoryStore() if store is None else store
        self.recorded = self.store.reads
        self.branches = self.store.branches
        self.availability = Availability()
        super().__init__()
        self.notified = trio.Event()
        self._poll_interval = poll_interval
        self.store.listen(self)

    # RevisionLog

    async def head(self) -> Head:
        await self._enter("head")
        head = self.store.head()
        self.newest_seen_revision = max(self.newest_seen_revision, head.revision)
        await self._reach("head.read")
        return head

    async def append(self, batch: Batch) -> BatchResult:
        fault = await self._enter("append")
        try:
            self.check_may_append()
        except NotSoleAppender as error:
            self.availability.refuse(error, "")
            raise
        self.availability.accept()
        if fault is Fault.LOST_BEFORE_COMMIT:
            raise OutcomeUnknown(batch.id)
        if fault is Fault.LOST_IN_FLIGHT:
            self.store.strand(batch)
            raise OutcomeUnknown(batch.id)
        result = self.store.commit(batch, notify=self.store.others(self))
        await self._reach("append.committed")
        if fault is Fault.LOST_AFTER_COMMIT:
            raise OutcomeUnknown(batch.id)
        return result

    async def settle(self, batch: Batch) -> BatchResult | None:
        await self._enter("settle")
        return self.store.settle(batch)

    def follow(self, position: Callable[[], Position | None]) -> None:
        """There is one connection, which leads to one store."""

    def restart(self, newest: int) -> None:
        self.newest_seen_revision = newest

    async def identities(self, revisions: Sequence[int]) -> Sequence[RowIdentity]:
        await self._enter("identities")
        return [row for revision in revisions if (row := self.store.identity(revision)) is not None]

    async def read(self, *, after: int, limit: int, position: Position | None = None) -> Chunk[Record]:
        await self._enter("read")
        if position is not None:
            head = self.store.head()
            position.confirm(self.store.identity(after), newest=head.revision, compacted=head.newest_mark)
        self.store.check_complete(after)
        records = bounded(self.store.rows(after=after), limit, record_size)
        await self._reach("read.read")
        return records

    async def read_resource(
        self, resource: str, *, after: int, until: int, limit: int, namespace: str = "", name: str = ""
    ) -> Chunk[tuple[Record, Record | None]]:
        await self._enter("read_resource")
        self.store.check_retained(resource, after)
        rows = takewhile(lambda row: row.revision <= until, self.store.rows(after=after))
        pairs = (
            (row, self.store.at(row.key, row.previous_revision) if row.previous_revision else None)
            for row in rows
            if row.key.resource == resource and namespace in ("", row.key.namespace) and name in ("", row.key.name)
        )
        return bounded(pairs, limit, pair_size)

    async def changes(self, query: ChangeQuery, *, limit: int) -> Chunk[tuple[Record, Record | None]]:
        await self._enter("changes")
        return bounded(self.store.changes(within_history(query, self.store.head())), limit, pair_size)

    async def states(
        self, queries: Sequence[ChangeQuery], *, limit: int, texts: Sequence[str] = ()
    ) -> Chunk[StatePair]:
        await self._enter("states")
        parts = [self.store.changes(within_history(query, self.store.head())) for query in queries]
        return bounded(merged(parts, queries[0], texts), limit, state_size)

    async def density(self, query: DensityQuery) -> list[Count]:
        await self._enter("density")
        query = replace(query, changes=within_history(query.changes, self.store.head()))
        return counted(self.store.rows(after=query.changes.after), self.store.who, query)

    async def groups(self, query: GroupQuery) -> list[ChangeGroup]:
        await self._enter("groups")
        query = replace(query, changes=within_history(query.changes, self.store.head()))
        return grouped(self.store.rows(after=query.changes.after), self.store.who, query)

    async def load(self) -> AsyncIterator[tuple[Head, Sequence[Record]]]:
        await self._enter("load")
        live, newest = self.store.live(), self.store.identity(self.store.revision)
        head = replace(self.store.head(), hash=newest.hash if newest is not None else b"")
        for start in range(0, max(len(live), 1), LOAD_CHUNK):
            yield head, live[start : start + LOAD_CHUNK]
            await self._enter("load")

    async def get_at(self, key: Key, *, revision: int) -> Record | None:
        await self._enter("get_at")
        self.store.check_state_at(key.resource, revision)
        return self.store.at(key, revision)

    async def list_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None, limit: int
    ) -> Chunk[Record]:
        await self._enter("list_at")
        return bounded(self.store.state_at(resource, revision, namespace, after), limit, record_size)

    async def count_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None
    ) -> int:
        await self._enter("count_at")
        return len(self.store.state_at(resource, revision, namespace, after))

    async def revision_at(self, when: datetime | timedelta) -> Moment:
        await self._enter("revision_at")
        moment = self.store.revision_at(when)
        self.newest_seen_revision = max(self.newest_seen_revision, moment.revision)
        return moment

    async def moment_of(self, revision: int) -> Moment:
        await self._enter("moment_of")
        return self.store.moment_of(revision)

    async def wait_notified(self) -> None:
        with trio.move_on_after(self._poll_interval):
            await self.notified.wait()
        self.notified = trio.Event()
