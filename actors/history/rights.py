"""Since when, and until when, RBAC let a subject make a request: found in the changes of roles and bindings.

The search begins with the state at a moment. It undoes the changes before the moment, newest first, until a subject
changes sides; then it applies the changes after the moment in the same way:

    moment 207    uma may delete pods
    undo 206      an unrelated binding
    undo 203      the binding ops without uma: since 203, by jane
    apply 212     the role edit without the verb: until 212, by bob

It reads only changes of roles and bindings: cluster-wide ones, and those of the request's namespace.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from kubechronicle.actors.reading.reads import Reads
from kubechronicle.api.access.grants_over_time import BINDINGS, ROLES, GrantsOverTime, Subject
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.changes import ChangeQuery, Text
from kubechronicle.eventlog.queries.chunks import Chunk
from kubechronicle.eventlog.records import Operation, Record

Pair = tuple[Record, Record | None]
LOCAL: Final = (ROLES[1], BINDINGS[1])

CHUNK: Final = 500
"""Changes read from the log at once: roles are small."""
FIRST_CHUNK: Final = 50
"""Changes read at first: most searches end soon."""
MAX_SEARCHED: Final = 20_000
"""Changes in one direction after which the search ends without an answer."""


_PLAIN: Final = re.compile(r"[\w:.@-]+", re.ASCII)
"""Names that JSON writes in one way only."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The turning points of some subjects.

    ``since``, ``until``: the change that gave or took the right before and after the moment; missing: none was found.
    ``first``, ``last``: the search covered all changes after revision ``first`` and up to ``last``.
    ``whole``: it covered the whole log before the moment, so that a subject without ``since`` never changed sides.
    """

    since: Mapping[Subject, Record] = field(default_factory=dict)
    until: Mapping[Subject, Record] = field(default_factory=dict)
    first: int = 0
    last: int = 0
    whole: bool = False


def grants_at(grants: GrantsOverTime, entries: Mapping[str, Iterable[Entry]]) -> GrantsOverTime:
    """Put the roles and bindings of a moment into empty grants."""
    for resource, found in entries.items():
        for entry in found:
            grants.put(resource, (entry.key.namespace, entry.key.name), entry.object())
    return grants


async def last_groups(log: RevisionLog, user: str, namespace: str, revision: int) -> tuple[tuple[str, ...], int]:
    """Return the groups with which a user made the last change up to a revision, and its revision; none: ((), 0).

    ``namespace``: only changes there; "": all changes.
    """
    texts = (("user_name", Text(value=user)),)
    query = ChangeQuery(until=revision, namespace=namespace, texts=texts, with_replaced=False)
    changes = await log.changes(query, limit=1)
    who = changes[0][0].who if changes else None
    return (who.groups, changes[0][0].revision) if who is not None else ((), 0)


class TurnSearch:
    """A search in the log. ``namespace``: of the request, "" for cluster-wide rights alone. ``floor``: the first
    revision that the reader may see. ``names``: of users and groups; a binding without any of them counts as absent,
    and is not decoded. None: all bindings count."""

    def __init__(self, reads: Reads, *, namespace: str, floor: int, names: Iterable[str] | None = None) -> None:
        self._reads = reads
        self._namespace = namespace
        # The subject of a service account has the last part of the user's name.
        parts = {part for name in names or () for part in (name, name.rpartition(":")[2])}
        is_plain = names is not None and all(map(_PLAIN.fullmatch, parts))
        self._names = [part.encode() for part in parts] if is_plain else None
        marks = [reads.views.compacted_for(resource) for resource in self._resources()]
        self._first = max(floor - 1, 0, *marks)

    def _resources(self) -> Sequence[str]:
        everywhere = (ROLES[0], BINDINGS[0])
        return (*everywhere, *LOCAL) if self._namespace else everywhere

    async def turns(self, grants: GrantsOverTime, moment: int, subjects: Iterable[Subject]) -> Turns:
        """Find the turning points of ``subjects``. ``grants``: as of the moment; they are left at the end of it."""
        wanted = frozenset(subjects)
        later = grants.copy()
        since, first = await self._search(grants, wanted, after=self._first, until=moment, newest_first=True)
        last_applied = max(self._reads.applied, moment)
        until, last = await self._search(later, wanted, after=moment, until=last_applied, newest_first=False)
        return Turns(since, until, first, last, whole=first == 0)

    async def _search(
        self, grants: GrantsOverTime, wanted: frozenset[Subject], *, after: int, until: int, newest_first: bool
    ) -> tuple[dict[Subject, Record], int]:
        """Return the first turn of each subject in one direction, and the revision to which the search reached."""
        found: dict[Subject, Record] = {}
        query = ChangeQuery(after=after, until=until, newest_first=newest_first, with_replaced=newest_first)
        searched = 0
        async with aclosing(self._changes(query)) as changes:
            async for record, before in changes:
                state, known = self._state(record, before, earlier=newest_first)
                searched += 1
                if not known or searched > MAX_SEARCHED:
                    return found, record.revision if newest_first else record.revision - 1
                place = (record.key.namespace, record.key.name)
                for subject in grants.put(record.key.resource, place, state) & wanted:
                    found.setdefault(subject, record)
                if len(found) == len(wanted):
                    break
        return found, after if newest_first else until

    async def _changes(self, query: ChangeQuery) -> AsyncGenerator[Pair, None]:
        """Yield the changes of all resources in one order."""
        streams = [
            self._of(replace(query, resources=(resource,), namespace=self._namespace if resource in LOCAL else ""))
            for resource in self._resources()
            if query.newest_first or not self._is_unchanged(resource, query.after)
        ]
        heads = [await anext(stream, None) for stream in streams]
        choose = max if query.newest_first else min
        while left := [(head[0].revision, index) for index, head in enumerate(heads) if head is not None]:
            _, index = choose(left)
            head = heads[index]
            assert head is not None
            yield head
            heads[index] = await anext(streams[index], None)

    def _is_unchanged(self, resource: str, revision: int) -> bool:
        """Tell if the view knows that a resource has not changed since a revision, which saves a query."""
        view = self._reads.views[resource]
        return view.held_since <= revision and view.unchanged_since(revision)

    async def _of(self, query: ChangeQuery) -> AsyncGenerator[Pair, None]:
        limit = FIRST_CHUNK
        while True:
            chunk: Chunk[Pair] = await self._reads.log.changes(query, limit=limit)
            for pair in chunk:
                yield pair
            if chunk.is_last(limit):
                return
            last = chunk[-1][0].revision
            query = replace(query, until=last - 1) if query.newest_first else replace(query, after=last)
            limit = CHUNK

    def _state(self, record: Record, before: Record | None, *, earlier: bool) -> tuple[dict[str, Any] | None, bool]:
        """Return the object after a change (``earlier``: before it), None if it was absent, and whether it is known."""
        if not earlier:
            state = None if record.operation is Operation.DELETE else record
        elif not record.previous_revision:
            state = None
        elif before is None:
            return None, False
        else:
            state = before
        if state is None:
            return None, True
        if state.erased or state.problem:
            return None, False
        binds = self._names is not None and record.key.resource in BINDINGS
        if binds and not any(name in state.body for name in self._names or ()):
            return None, True
        return orjson.loads(state.body), True
