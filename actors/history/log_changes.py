"""LogChanges: the changes of one log as one client may see them: selected, judged, and made into Revisions.

A client that may read revisions learns that an object changed. The contents of the change also require permission to
read the object (``readable``). Which change comes next, of which log: `Merge` below, and revisions.py.

Merge: the changes of several logs in the order of their times.

    main log    41 14:00:00.1    42 14:00:03                 oldest first: 41, …7, …8, 42
    second      …7 14:00:00.2    …8 14:00:01

Each log gives its changes in its own order, and its commit times never go back. Changes of one time are in the order of
the logs, the main one first. Each log is read in parts of bounded size, so that a page of the merged list costs as much
as a page of one log. Between logs, the order is as exact as the clocks of their databases agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from kubechronicle.actors.history.change_records import WHOLE, PlainForm, SecretValues, entry_of, matches
from kubechronicle.actors.history.other_logs import LogBounds, at_time
from kubechronicle.actors.history.revision_selection import (
    DeletedTypes,
    RevisionSelection,
    select_revisions,
    tagged_revisions,
)
from kubechronicle.actors.history.verdicts import Pair, Verdicts
from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.reading.reads import Reads, Selection
from kubechronicle.api.admission.replays import ReplayOutcome
from kubechronicle.api.history.positions import is_joined, joined, revisions_of
from kubechronicle.api.history.revisions import PLAIN, Content
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import BeforeHistory
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.changes import CHUNK_BYTES, ChangeQuery, pair_size
from kubechronicle.eventlog.queries.states import StatePair
from kubechronicle.eventlog.records import Moment, Record

CHUNK: Final = 500
"""Changes read from a log at once. With the objects they replaced, these are usually a few megabytes."""
NEVER: Final = 2**63
"""A revision after all others."""

Readable = Callable[[str, str, str], Awaitable[int]]
"""Return the first revision at which the client may read an object, NEVER if it may not: (storage resource, namespace,
name)."""


async def _from_the_beginning(_: str) -> int:
    return 0


class LogChanges:
    """The changes of one log. ``reads``: of this log; ``every``: of all logs, by default of this one alone.

    ``begins``: returns the first revision of a namespace that the client may list.
    ``at``: the newest revision to return; None: the current one.
    ``content``: how much of the objects a list returns. A get returns all of it.
    ``form``: the form of lists with plain contents.
    ``verdicts``: judges the changes; a list has only those that a policy would have refused.
    ``values``: the form of the values of Secrets; masked with a random key by default.
    ``turn``: the request's share in the large work; differences of large objects are computed there.
    """

    def __init__(
        self,
        reads: Reads,
        registry: Registry,
        deleted: DeletedTypes,
        *,
        readable: Readable,
        turn: Turn,
        every: Reads | None = None,
        begins: Callable[[str], Awaitable[int]] = _from_the_beginning,
        at: Moment | None = None,
        content: Content = "",
        form: PlainForm = WHOLE,
        verdicts: Verdicts | None = None,
        values: SecretValues | None = None,
    ) -> None:
        self.reads = reads
        self._every = every or reads
        self._registry = registry
        self._deleted = deleted
        self.readable = readable
        self._begins = begins
        self.turn = turn
        self._at = at
        self.content = content
        self.form = form
        self.verdicts = verdicts
        self.values = values or SecretValues()
        self.bounds = LogBounds(self._every, reads, lambda: self.newest(None))

    @property
    def log(self) -> RevisionLog:
        return self.reads.log

    @property
    def place(self) -> int:
        return self.reads.place

    # -- what is selected ---------------------------------------------------------------------------------------------

    async def begins(self, namespace: str) -> int:
        """Return the first revision of a namespace that the client may list; 0: it may list all. "": no namespace."""
        return await self._begins(namespace) if namespace else 0

    async def select(self, rt: ResourceType, selection: Selection) -> RevisionSelection:
        """Split a list's selectors into a query of the log and the rest. StatusError 400."""
        tagged = tagged_revisions(self._every, self._registry)
        found = await select_revisions(rt, selection, self._registry, self.bounds, self._deleted, tagged)
        first = await self.begins(selection.namespace)
        if first <= found.query.after + 1:
            return found
        query = replace(found.query, after=first - 1)
        return replace(found, query=query, is_empty=found.is_empty or query.after >= query.until)

    async def newest(self, position: int | None) -> int:
        """Return the newest revision to answer with, which is not older than a position."""
        if self._at is not None:
            return self._at.revision
        known = position
        if position and (is_joined(position) or len(self._every.logs) > 1):
            known = revisions_of(position).get(self.place)  # the revision of another log says nothing about this one
        if known is None:
            return await self.reads.wait_consistent()
        await self.reads.wait_not_older(known)
        return self.reads.applied

    def is_plain(self, selected: RevisionSelection) -> bool:
        """Tell whether objects are passed on as the log holds them: nothing decodes them."""
        return self.content in PLAIN and not selected.needs_objects and self.verdicts is None

    async def may_read(self, record: Record) -> bool:
        """Tell whether the client may read the object of a change."""
        return record.revision >= await self.readable(*record.key)

    async def judged(self, pairs: Sequence[Pair]) -> Sequence[Sequence[ReplayOutcome]]:
        """Return the verdicts on changes, none for those that the client may not read."""
        assert self.verdicts is not None
        readable = [await self.may_read(record) for record, _ in pairs]
        seen = [pair for pair, may_read in zip(pairs, readable, strict=True) if may_read]
        found = iter(await self.verdicts.of(seen, [await self._in_main_log(record) for record, _ in seen]))
        return [next(found) if may_read else () for may_read in readable]

    async def _in_main_log(self, record: Record) -> int:
        """Return the revision of the main log before which the state is that before a change."""
        main = self._every.main
        if main.place == self.place:
            return record.revision
        try:
            return (await at_time(main, record.committed_at)).revision + 1
        except BeforeHistory:
            return 1

    # -- entries ------------------------------------------------------------------------------------------------------

    async def matching(self, selected: RevisionSelection, record: Record, before: Record | None) -> Entry | None:
        """Return the revision if its object matches the selectors."""
        if not selected.needs_objects:
            return await self.entry(record, before, content=self.content)
        if not await self.may_read(record):
            return None  # selectors must not reveal labels and fields that the client may not read
        size = pair_size((record, before))
        await self.turn.begin(size)
        if not await self.turn.run(size, partial(matches, selected, record, before)):
            return None
        return await self.entry(record, before, content=self.content)

    async def entry(self, record: Record, before: Record | None, *, content: Content) -> Entry:
        """Return the revision as an Entry, to be listed and watched like any object."""
        readable = await self.may_read(record)
        size = pair_size((record, before))
        await self.turn.begin(size)
        make = partial(
            entry_of, record, before, content, self.values, self.form, readable=readable, database=self.reads.name
        )
        return await self.turn.run(size, make)

    # -- for watches --------------------------------------------------------------------------------------------------

    async def after(self, selected: RevisionSelection, revision: int) -> tuple[Sequence[tuple[Record, Entry]], int]:
        """Return the matching changes after a revision, oldest first, and the last revision scanned."""
        applied = self.reads.applied
        query = replace(
            selected.query,
            after=max(selected.query.after, revision),
            until=min(selected.query.until, applied),
            newest_first=False,
        )
        if selected.is_empty or revision >= applied:
            return [], max(applied, revision)
        chunk = await self.log.changes(query, limit=CHUNK)
        matching = [(record, await self.matching(selected, record, before)) for record, before in chunk]
        await self.values.finish()
        reached = applied if chunk.is_last(CHUNK) else chunk[-1][0].revision
        return [(record, entry) for record, entry in matching if entry is not None], reached

    async def wait_after(self, revision: int) -> None:
        """Return when this replica has applied a newer revision."""
        await self.reads.wait_newer(revision)


@dataclass(slots=True, eq=False)
class Share:
    """The share of one log in a question. ``selected``: the selectors, with the bounds as revisions of this log.

    ``query``: the changes that are still to be read, in order.
    ``scanned``: the last change that the reader has looked at.
    ``first_readable``: what the reader remembers of rights, by resource and namespace.
    """

    changes: LogChanges
    selected: RevisionSelection
    query: ChangeQuery = field(init=False)
    scanned: Record | None = None
    first_readable: dict[tuple[str, ...], int] = field(default_factory=dict)
    ended: bool = False
    held: deque[Pair] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.query = self.selected.query

    def narrow(self, *, after: int = 0, until: int, **options: Any) -> None:
        """Restrict the changes to those between two revisions, and set further options of the query."""
        query = replace(self.query, after=max(self.query.after, after), until=min(self.query.until, until), **options)
        self.query = query
        self.ended = self.selected.is_empty or query.after >= query.until

    async def read(self, limit: int) -> None:
        """Hold the next changes."""
        chunk = await self.changes.log.changes(self.query, limit=limit)
        self.held.extend(chunk)
        self._pass_over(chunk[-1][0].revision if chunk else 0, is_last=chunk.is_last(limit))

    async def read_states(self, limit: int) -> Sequence[StatePair]:
        """Return the states of the next changes."""
        chunk = await self.changes.log.states([self.query], limit=limit)
        self._pass_over(chunk[-1][0].revision if chunk else 0, is_last=chunk.is_last(limit))
        return chunk

    def _pass_over(self, last: int, *, is_last: bool) -> None:
        self.ended = is_last
        if last:
            query = self.query
            self.query = replace(query, until=last - 1) if query.newest_first else replace(query, after=last)


class Merged(NamedTuple):
    """One change, and the log that it is of. ``before``: the record that it replaced."""

    share: Share
    record: Record
    before: Record | None


class Merge:
    """The changes of some shares, in one order. All their queries have the same order."""

    def __init__(self, shares: Sequence[Share]) -> None:
        self.shares = shares

    @property
    def ended(self) -> bool:
        return all(share.ended and not share.held for share in self.shares)

    async def take(self, limit: int) -> Sequence[Merged]:
        """Return the next changes: at most ``limit``, and up to the one that reaches CHUNK_BYTES; [] at the end."""
        shares = self.shares
        taken: list[Merged] = []
        if len(shares) == 1:
            (share,) = shares
            if not share.ended:
                await share.read(limit)
            taken = [Merged(share, *pair) for pair in share.held]
            share.held.clear()
            return taken
        size, part = 0, limit // len(shares) + 1
        while len(taken) < limit and size < CHUNK_BYTES:
            for share in shares:
                if not share.held and not share.ended:
                    await share.read(part)
            if not (ready := [share for share in shares if share.held]):
                break
            first = _next(ready)
            pair = first.held.popleft()
            size += pair_size(pair)
            taken.append(Merged(first, *pair))
        return taken


def _next(ready: Sequence[Share]) -> Share:
    """Return the share that has the next change."""
    if len(ready) == 1:
        return ready[0]
    return (max if ready[0].query.newest_first else min)(ready, key=_place_of_next)


def _place_of_next(share: Share) -> tuple[datetime, int]:
    return share.held[0][0].committed_at, share.changes.place


def in_order(found: Iterable[tuple[Share, Record, Any]]) -> list[tuple[Share, Record, Any]]:
    """Return changes of several logs in the order of their times, oldest first."""
    return sorted(found, key=lambda each: (each[1].committed_at, each[1].revision))


def position_of(revisions: Mapping[LogChanges, int]) -> int:
    """Return the position at these revisions of logs."""
    return joined({changes.place: revision for changes, revision in revisions.items()})


def everywhere(everything: bool, /) -> dict[str, Any]:
    """Return the options of a query that concerns cluster-scoped objects, too, if ``everything``."""
    return {"namespaced": None} if everything else {}
