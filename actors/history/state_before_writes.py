"""The state before each write of a chunk, for policies that look at more than objects of known names.

Such a policy selects its parameters by labels, or asks for rights. The lists that it looks at are read from the log as
of the first write of the chunk; then the changes of these lists are applied up to each write:

    write 207    the list as of 206
    change 210   of the list
    write 215    the list as of 206 with change 210
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import orjson

from kubechronicle.api.access.past_state import States
from kubechronicle.api.cel.library.authorization import Decide
from kubechronicle.api.errors import status
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import seal
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.changes import ChangeQuery, Chunk
from kubechronicle.eventlog.records import Operation, Record

PART: Final = 500
"""Objects or changes that are read at once."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of the objects and changes of the lists of one chunk: the memory of one request."""
OVERHEAD: Final = 3_000
"""Bytes that an object costs besides: so there are at most 11,000."""
TOO_MANY: Final = (
    f"policies that only audit look at more than {MOST_BYTES >> 20} MiB of parameters or roles at once; "
    "kubectl chronicle try-policy --audited judges them"
)


class WriteScope(NamedTuple):
    """A list that policies look at. ``namespace``: "" for all."""

    resource: str
    namespace: str


class Lists:
    """Lists as they were before each of some writes. Ask for the writes in the order of their revisions.

    ``first``: the first write whose state is known.
    """

    def __init__(self, states: States, changes: Sequence[Record], first: int) -> None:
        self.first = first
        self._states = states
        self._changes = changes
        self._applied = 0

    def go_to(self, revision: int) -> None:
        """Apply the changes before a revision."""
        while self._applied < len(self._changes) and self._changes[self._applied].revision < revision:
            record = self._changes[self._applied]
            self._states.put(*record.key, object_of(record))
            self._applied += 1

    def entries(self, resource: str, namespace: str) -> Iterable[Object]:
        return self._states.entries(resource, namespace)

    def decide(self, user: Mapping[str, Any]) -> Decide:
        return self._states.decide(user)


def object_of(record: Record) -> Object | None:
    """Return the object after a change, None if there is none, or its contents are gone."""
    if record.operation is Operation.DELETE or record.erased or record.problem:
        return None
    obj: Object = orjson.loads(seal(record.body, record.revision))
    return obj


async def read_lists(log: RevisionLog, scopes: Iterable[WriteScope], *, first: int, last: int) -> Lists:
    """Read the lists for writes from revision ``first`` to ``last``. StatusError 400: too many. Compacted."""
    wanted = set(scopes)
    # A whole list takes the place of those of its namespaces.
    wanted = {each for each in wanted if not each.namespace or WriteScope(each.resource, "") not in wanted}
    states = States({each.resource for each in wanted})
    size, changes = 0, []
    for scope in sorted(wanted):
        async with aclosing(_objects(log, scope, first - 1)) as objects:
            async for record in objects:
                size = _added(size, record)
                states.put(*record.key, object_of(record))
        query = ChangeQuery(
            after=first - 1, until=last - 1, resources=(scope.resource,), namespace=scope.namespace, with_replaced=False
        )
        async with aclosing(_changes(log, query)) as found:
            async for record in found:
                size = _added(size, record)
                changes.append(record)
    return Lists(states, sorted(changes, key=lambda record: record.revision), first)


def _added(size: int, record: Record) -> int:
    size += OVERHEAD + len(record.body)
    if size > MOST_BYTES:
        raise status.bad_request(TOO_MANY)
    return size


async def _objects(log: RevisionLog, scope: WriteScope, revision: int) -> AsyncGenerator[Record, None]:
    after: tuple[str, str] | None = None
    while True:
        chunk: Chunk[Record] = await log.list_at(
            scope.resource, revision=revision, namespace=scope.namespace, after=after, limit=PART
        )
        for record in chunk:
            yield record
        if chunk.is_last(PART):
            return
        after = (chunk[-1].key.namespace, chunk[-1].key.name)


async def _changes(log: RevisionLog, query: ChangeQuery) -> AsyncGenerator[Record, None]:
    while query.after < query.until:
        chunk = await log.changes(query, limit=PART)
        for record, _ in chunk:
            yield record
        if chunk.is_last(PART):
            return
        query = ChangeQuery(
            after=chunk[-1][0].revision,
            until=query.until,
            resources=query.resources,
            namespace=query.namespace,
            with_replaced=False,
        )
