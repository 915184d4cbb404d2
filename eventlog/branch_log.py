"""BranchLog: the RevisionLog of one branch. Its changes are rows of a BranchTable; its base is in the main log.

Any server may append. Each knows the newest revision of all changed keys, up to a head, and decides by that. The table
takes an append only if it follows the newest revision; otherwise the server reads what it missed, and decides again:

    head 42 here     another server appends 43 to the table
    append 43        BEHIND: read 43, decide again, append 44

Invariant: nothing is appended to the main log here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

import trio
from msgspec.structs import replace

from kubechronicle.eventlog.availability import Availability
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import Compacted, LogCorrupt, LogError, LogUnavailable, OutcomeUnknown
from kubechronicle.eventlog.log import Claim, RevisionLog
from kubechronicle.eventlog.positions import Position, RowIdentity
from kubechronicle.eventlog.queries.branches import BranchAnswer, BranchFull, BranchGone, BranchHead, BranchOutcome
from kubechronicle.eventlog.queries.changes import ChangeQuery, Chunk
from kubechronicle.eventlog.queries.density import Count, DensityQuery
from kubechronicle.eventlog.queries.groups import ChangeGroup, GroupQuery
from kubechronicle.eventlog.queries.states import StatePair
from kubechronicle.eventlog.records import (
    Batch,
    BatchResult,
    Change,
    Head,
    Key,
    Moment,
    Operation,
    Record,
    Rejected,
    Transaction,
    Who,
)
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.views.views import Views

CHUNK: Final = 500

Pair = tuple[Record, Record | None]


class BranchKeyState(NamedTuple):
    """The newest change of a key. ``revision`` 0: the key is absent. ``changed``: the revision of the change."""

    revision: int
    create_revision: int
    version: int
    changed: int = 0


ABSENT: Final = BranchKeyState(0, 0, 0)


class _Decided(NamedTuple):
    """A batch as it would be appended."""

    outcomes: tuple[tuple[Record, ...] | Rejected, ...]
    records: list[Record]
    who: list[Who]


class BranchLog:
    """See the head of this file. ``main``: the log as it is stored. ``state_at_base``: of keys that no change of the
    branch concerns; the owner of the views sets it."""

    def __init__(self, main: RevisionLog, branch: UUID, base: int) -> None:
        self.recorded = main.recorded
        self.branches = main.branches
        self.availability = Availability()
        self.newest_seen_revision = base
        self.state_at_base: Callable[[Key], BranchKeyState] = lambda key: ABSENT
        self.base: Final = base
        self._main = main
        self._branch = branch
        self._changed: dict[Key, BranchKeyState] = {}
        self._head = base
        self._epoch = 0
        self._unsettled: dict[UUID, _Decided] = {}

    # Appending

    async def append(self, batch: Batch) -> BatchResult:
        while True:
            decided = self._decide(batch)
            if not decided.records:  # a rejection must hold on the newest state
                before = self._head
                await self._catch_up()
                if self._head > before:
                    continue
                return BatchResult(outcomes=decided.outcomes, first=self._head + 1, head=self._head)
            self._unsettled = {batch.id: decided}
            answer = await self.branches.append(self._branch, batch.id, self._epoch, decided.records, decided.who)
            if answer.outcome is BranchOutcome.APPENDED:
                return self._committed(decided, answer)
            if answer.outcome is BranchOutcome.FULL:
                raise BranchFull
            if answer.outcome is BranchOutcome.GONE:
                raise BranchGone(erased=(await self.branches.head(self._branch)) is not None)
            self._epoch = answer.epoch
            await self._catch_up()

    async def settle(self, batch: Batch) -> BatchResult | None:
        answer = await self.branches.settle(self._branch, batch.id)
        self._epoch = answer.epoch
        if answer.outcome is not BranchOutcome.APPENDED:
            return None
        decided = self._unsettled.get(batch.id)
        if decided is None:
            raise OutcomeUnknown(batch.id)
        return self._committed(decided, answer)

    def _decide(self, batch: Batch) -> _Decided:
        decided = _Decided((), [], [])
        outcomes: list[tuple[Record, ...] | Rejected] = []
        for transaction in batch.transactions:
            outcome = self._decide_one(transaction, self._head + len(decided.records))
            outcomes.append(outcome)
            if not isinstance(outcome, Rejected):
                decided.records.extend(outcome)
                decided.who.extend(transaction.who_of(change) for change in transaction.changes)
        return decided._replace(outcomes=tuple(outcomes))

    def _decide_one(self, transaction: Transaction, head: int) -> tuple[Record, ...] | Rejected:
        for change in transaction.changes:
            actual = self._state(change.key).revision
            if actual != change.expected:
                return Rejected(key=change.key, expected=change.expected, actual=actual)
        return tuple(
            self._record(change, transaction.who_of(change), revision)
            for revision, change in enumerate(transaction.changes, head + 1)
        )

    def _record(self, change: Change, who: Who, revision: int) -> Record:
        before = self._state(change.key)
        creates = change.operation is Operation.CREATE
        return Record(
            revision=revision,
            key=change.key,
            uid=change.uid,
            create_revision=revision if creates else before.create_revision,
            version=1 if creates else before.version + 1,
            previous_revision=before.revision,
            operation=change.operation,
            body=change.body,
            committed_at=datetime.min,
            who=who,
            decoded=change.decoded,
            mark=change.mark,
        )

    def _state(self, key: Key) -> BranchKeyState:
        return self._changed.get(key) or self.state_at_base(key)

    def _committed(self, decided: _Decided, answer: BranchAnswer) -> BatchResult:
        assert answer.committed_at is not None

        def stamped(records: tuple[Record, ...]) -> tuple[Record, ...]:
            return tuple(replace(record, committed_at=answer.committed_at) for record in records)

        outcomes = tuple(each if isinstance(each, Rejected) else stamped(each) for each in decided.outcomes)
        first = decided.records[0].revision
        self._note(decided.records)
        self._unsettled.clear()
        return BatchResult(outcomes=outcomes, first=first, head=decided.records[-1].revision)

    async def _catch_up(self) -> None:
        """Learn of the changes of other servers. LogUnavailable, BranchGone."""
        head = await self._read_head()
        while self._head < head.revision:
            if not await self.read(after=self._head, limit=CHUNK):
                raise LogCorrupt(
                    f"branch {self._branch} has revision {head.revision}, but nothing follows {self._head}"
                )

    def _note(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.revision == self._head + 1:
                deleted = record.operation is Operation.DELETE
                self._changed[record.key] = BranchKeyState(
                    0 if deleted else record.revision, record.create_revision, record.version, record.revision
                )
                self._head = record.revision

    # Reading

    def reset(self) -> None:
        """Forget all changes: they are read again."""
        self._changed.clear()
        self._head = self.base

    def changed_keys(self) -> list[Key]:
        """Return the keys with changes, as far as this server knows."""
        return sorted(self._changed)

    def last_change(self, key: Key) -> int:
        """Return the revision of the newest change of a key, 0 without any."""
        return self._changed.get(key, ABSENT).changed

    async def _read_head(self) -> BranchHead:
        found = await self.branches.head(self._branch)
        if found is None or found.erased:
            raise BranchGone(erased=found is not None)
        self._epoch = max(self._epoch, found.epoch)
        return found

    async def head(self) -> Head:
        return Head(revision=(await self._read_head()).revision, compacted=self.base)

    async def read(self, *, after: int, limit: int, position: Position | None = None) -> Chunk[Record]:
        records = await self.branches.read(self._branch, after=max(after, self.base), limit=limit)
        self._note(records)
        return records

    async def read_resource(
        self, resource: str, *, after: int, until: int, limit: int, namespace: str = "", name: str = ""
    ) -> Chunk[Pair]:
        if after < self.base:
            raise Compacted(after, self.base)
        scope = Key(resource, namespace, name)
        records = await self.branches.read(self._branch, after=after, limit=limit, until=until, scope=scope)
        pairs: Chunk[Pair] = Chunk([(record, await self._replaced(record)) for record in records])
        pairs.cut = records.cut
        return pairs

    async def _replaced(self, record: Record) -> Record | None:
        if not record.previous_revision:
            return None
        return await self.get_at(record.key, revision=record.revision - 1)

    async def get_at(self, key: Key, *, revision: int) -> Record | None:
        found = await self.branches.get_at(self._branch, key, revision=revision)
        if found is not None:
            return found if found.operation is not Operation.DELETE else None
        return await self._main.get_at(key, revision=self.base)

    async def authors(self, revisions: Sequence[int]) -> dict[int, Who]:
        """Return the authors of changes."""
        return dict(await self.branches.authors(self._branch, revisions))

    async def load(self) -> AsyncIterator[tuple[Head, Sequence[Record]]]:
        """The tail loads the base by itself."""
        raise LogUnavailable("a branch is loaded from its base")
        yield  # pragma: no cover

    async def list_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None, limit: int
    ) -> Chunk[Record]:
        """States that left memory are not kept: a reader lists again."""
        raise Compacted(revision, self._head)

    async def count_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None
    ) -> int:
        raise Compacted(revision, self._head)

    async def wait_notified(self) -> None:
        await self.branches.wait_changed(self._branch)

    def follow(self, position: Callable[[], Position | None]) -> None:
        """The table has no positions."""

    def restart(self, newest: int) -> None:
        self.newest_seen_revision = newest

    async def identities(self, revisions: Sequence[int]) -> Sequence[RowIdentity]:
        return []

    # Not of a branch: its history is that of the main log, up to the base

    async def changes(self, query: ChangeQuery, *, limit: int) -> Chunk[Pair]:
        raise _no_history()

    async def states(
        self, queries: Sequence[ChangeQuery], *, limit: int, texts: Sequence[str] = ()
    ) -> Chunk[StatePair]:
        raise _no_history()

    async def density(self, query: DensityQuery) -> list[Count]:
        raise _no_history()

    async def groups(self, query: GroupQuery) -> list[ChangeGroup]:
        raise _no_history()

    async def revision_at(self, when: datetime | timedelta) -> Moment:
        raise _no_history()

    async def moment_of(self, revision: int) -> Moment:
        raise _no_history()

    async def claim(self) -> Claim | None:
        return None

    async def wait_claim_in_doubt(self) -> None:
        await trio.sleep_forever()


def _no_history() -> LogError:
    return LogError("a branch keeps no history of its own")


# -- branch tail -------------------------------------------------------------------------------------------------------
#
# BranchTail: the tail of a branch, which loads the base, and then applies the changes of the branch as events.

LoadBase = Callable[[], Awaitable[dict[str, list[Entry]]]]
"""Return all objects as of the base, by resource."""


class BranchTail(Tail):
    """``log``: of the branch; ``over``: the same, decrypted. ``load_base``: called again after a crash."""

    def __init__(self, log: BranchLog, over: RevisionLog, views: Views, load_base: LoadBase) -> None:
        super().__init__(over, views)
        self._of_branch = log
        self._load_base = load_base
        self._base: dict[str, list[Entry]] | None = None

    async def prepare(self) -> None:
        """Load the base before the tail runs, so that its errors reach the caller."""
        self._base = await self._load_base()

    def end(self) -> None:
        """End all watches: the branch is closed here. Their clients list again."""
        self.views.load({}, Head(revision=self.views.applied, compacted=self.views.applied), restart=True)

    async def _read_everything(self) -> tuple[Head, dict[str, list[Entry]]]:
        base, self._base = self._base, None
        self._of_branch.reset()
        head = Head(revision=self._of_branch.base, compacted=self._of_branch.base)
        return head, await self._load_base() if base is None else base
