"""Merge: the changes of several logs in the order of their times.

    main log    41 14:00:00.1    42 14:00:03                 oldest first: 41, …7, …8, 42
    second      …7 14:00:00.2    …8 14:00:01

Each log gives its changes in its own order, and its commit times never go back. Changes of one time are in the order of
the logs, the main one first. Each log is read in parts of bounded size, so that a page of the merged list costs as much
as a page of one log. Between logs, the order is as exact as the clocks of their databases agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from kubechronicle.actors.history.log_changes import LogChanges
from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.actors.history.verdicts import Pair
from kubechronicle.api.history.positions import joined
from kubechronicle.eventlog.queries.changes import CHUNK_BYTES, ChangeQuery, pair_size
from kubechronicle.eventlog.queries.states import StatePair
from kubechronicle.eventlog.records import Record


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
