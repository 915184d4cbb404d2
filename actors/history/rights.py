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

from kubechronicle.actors.history.change_records import records_of
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.api.access.grants_over_time import BINDINGS, ROLES, GrantsOverTime, Subject
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.changes import ChangeQuery, Text
from kubechronicle.eventlog.queries.states import ObjectState, StatePair
from kubechronicle.eventlog.records import Operation, Record

LOCAL: Final = (ROLES[1], BINDINGS[1])

FIRST_CHUNK: Final = 200
"""Changes read from the log at first: most searches end soon. Each further chunk is twice as long."""
CHUNK: Final = 2000
"""Changes read at once, at most."""
MAX_SEARCHED: Final = 20_000
"""Changes in one direction after which the search ends without an answer."""
MAX_NAMES: Final = 50
"""Names of users and groups that are looked for in bindings; with more, all bindings are read."""
RULES: Final = '"rules"'
"""A text in each role that permits anything."""
SUBJECTS: Final = '"subjects"'
"""A text in each binding that binds anybody."""

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
    query = ChangeQuery(until=revision, namespace=namespace, texts=texts, with_replaced=False, rare=True)
    changes = await log.changes(query, limit=1)
    who = changes[0][0].who if changes else None
    return (who.groups, changes[0][0].revision) if who is not None else ((), 0)


class TurnSearch:
    """A search in the log.

    ``namespace``: of the request, "" for cluster-wide rights alone. ``floor``: the first revision that the reader may
    see. ``names``: of users and groups; a binding without any of them counts as absent, and is not even read. None: all
    bindings count.
    """

    def __init__(self, reads: Reads, *, namespace: str, floor: int, names: Iterable[str] | None = None) -> None:
        self._reads = reads
        self._namespace = namespace
        # The subject of a service account has the last part of the user's name.
        parts = sorted({part for name in names or () for part in (name, name.rpartition(":")[2])})
        is_plain = names is not None and len(parts) <= MAX_NAMES and all(map(_PLAIN.fullmatch, parts))
        self._names = parts if is_plain else []
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
        records = await records_of(self._reads.log, (*since.values(), *until.values()))
        # A change that has left history since is as unknown as those beyond the search.
        first = max([first, *(revision for revision in since.values() if revision not in records)])
        last = min([last, *(revision - 1 for revision in until.values() if revision not in records)])
        return Turns(
            {subject: records[revision] for subject, revision in since.items() if revision in records},
            {subject: records[revision] for subject, revision in until.items() if revision in records},
            first,
            last,
            whole=first == 0,
        )

    async def _search(
        self, grants: GrantsOverTime, wanted: frozenset[Subject], *, after: int, until: int, newest_first: bool
    ) -> tuple[dict[Subject, int], int]:
        """Return the first turn of each subject in one direction, and the revision to which the search reached."""
        found: dict[Subject, int] = {}
        query = ChangeQuery(after=after, until=until, newest_first=newest_first, with_replaced=newest_first, rare=True)
        searched = 0
        async with aclosing(self._changes(query)) as changes:
            async for state, before in changes:
                obj, known = _object(state, before, earlier=newest_first)
                searched += 1
                if not known or searched > MAX_SEARCHED:
                    return found, state.revision if newest_first else state.revision - 1
                key = state.key
                for subject in grants.put(key.resource, (key.namespace, key.name), obj) & wanted:
                    found.setdefault(subject, state.revision)
                if len(found) == len(wanted):
                    break
        return found, after if newest_first else until

    async def _changes(self, query: ChangeQuery) -> AsyncGenerator[StatePair, None]:
        """Yield the changes of all resources in one order."""
        limit = FIRST_CHUNK
        while queries := [
            replace(query, resources=(resource,), namespace=self._namespace if resource in LOCAL else "")
            for resource in self._resources()
            if query.newest_first or not self._is_unchanged(resource, query.after)
        ]:
            chunk = await self._reads.log.states(queries, limit=limit, texts=self._texts())
            for pair in chunk:
                yield pair
            if chunk.is_last(limit):
                return
            last = chunk[-1][0].revision
            query = replace(query, until=last - 1) if query.newest_first else replace(query, after=last)
            limit = min(2 * limit, CHUNK)

    def _texts(self) -> Sequence[str]:
        """Return the texts of the objects that count: subjects of bindings, and a field of roles."""
        return (RULES, *(self._names or (SUBJECTS,)))

    def _is_unchanged(self, resource: str, revision: int) -> bool:
        """Tell if the view knows that a resource has not changed since a revision, which saves a query."""
        view = self._reads.views[resource]
        return view.held_since <= revision and view.unchanged_since(revision)


def _object(state: ObjectState, before: ObjectState | None, *, earlier: bool) -> tuple[dict[str, Any] | None, bool]:
    """Return an object, None if it counts as absent, and whether that is known. ``earlier``: as it was before."""
    if not earlier:
        found = None if state.operation is Operation.DELETE else state
    elif not state.previous_revision:
        found = None
    elif before is None:
        return None, False
    else:
        found = before
    if found is None:
        return None, True
    if found.erased or found.problem:
        return None, False
    return orjson.loads(found.body) if found.body else None, True
