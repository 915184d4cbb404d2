"""ChangeQuery: a query for changes in history, by key, kind of change, user and request.

A ChangeQuery is a conjunction of its conditions. The log in memory evaluates it with ``matches``, Postgres with the
statement of postgres/change_sql.py. Conditions on the contents of objects are not here; the reader filters the records.

    ChangeQuery(resources=("deployments.apps",), namespace="shop", name="web", newest_first=True)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from kubechronicle.eventlog.records import Head, Operation, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A condition on a text: it equals ``value`` (``prefix``: begins with it), or not, if ``equal`` is False.

    Of a column with several texts, one of them equals the value, or none.
    """

    value: str
    equal: bool = True
    prefix: bool = False

    def holds(self, texts: tuple[str, ...]) -> bool:
        found = any(text.startswith(self.value) if self.prefix else text == self.value for text in texts)
        return found is self.equal


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeQuery:
    """Changes with ``after`` < revision <= ``until``.

    ``namespaced``: True: only objects in namespaces; False: only cluster-scoped ones; None: both.
    ``namespace``, ``name``: "" for any.
    ``resources``, ``operations``, ``revisions``: empty for any.
    ``causes``: only changes whose recorded cause is one of these revisions; empty for any.
    ``texts``: conditions by column, named as in TEXTS.
    ``reason``: a text that the reason of the change, or an annotation of its object, may have. The reader decides which
    changes do; a log leaves out as many of the others as it can.
    ``with_replaced``: each change comes with the record it replaced, which costs as much again.
    ``brief``: changes may lack uid, create_revision and version, and of ``who`` all but user, verb, request_uri and
    audit_id. A reader of many changes saves a quarter of the cost.
    ``rare``: few changes match the other conditions, so reading all of these costs less than reading the namespace's.
    ``floors``: revisions, each with the resources whose changes must be above it.
    ``rest``: the same for all resources but those in ``named``. changes.py sets these three.
    """

    after: int = 0
    until: int = 2**63 - 1
    newest_first: bool = True
    namespaced: bool | None = None
    namespace: str = ""
    name: str = ""
    resources: tuple[str, ...] = ()
    not_resources: tuple[str, ...] = ()
    operations: tuple[Operation, ...] = ()
    revisions: tuple[int, ...] = ()
    causes: tuple[int, ...] = ()
    texts: tuple[tuple[str, Text], ...] = ()
    reason: str = ""
    with_replaced: bool = True
    brief: bool = False
    rare: bool = False
    floors: tuple[tuple[int, tuple[str, ...]], ...] = ()
    rest: int = 0
    named: tuple[str, ...] = ()

    def matches(self, record: Record) -> bool:
        key = record.key
        return (
            self.after < record.revision <= self.until
            and (self.namespaced is None or bool(key.namespace) is self.namespaced)
            and (not self.namespace or key.namespace == self.namespace)
            and (not self.name or key.name == self.name)
            and (not self.resources or key.resource in self.resources)
            and key.resource not in self.not_resources
            and (not self.operations or record.operation in self.operations)
            and (not self.revisions or record.revision in self.revisions)
            and (not self.causes or (record.who is not None and record.who.cause in self.causes))
            and all(text.holds(TEXTS[column](record)) for column, text in self.texts)
            and all(record.revision > mark or key.resource not in of for mark, of in self.floors)
            and (record.revision > self.rest or key.resource in self.named)
        )


def _of_who(*fields: str) -> Callable[[Record], tuple[str, ...]]:
    return lambda record: tuple(str(getattr(record.who, field)) if record.who is not None else "" for field in fields)


SUBRESOURCE: Final = (
    r"^/(?:api/[^/]+|apis/[^/]+/[^/]+)/(?:namespaces/[^/]+/(?!(?:status|finalize)(?:[?]|$)))?"
    r"(?!namespaces/[^/]+/(?!status|finalize))[^/?]+/[^/?]+/([^/?]+)(?:[?]|$)"
)
"""The subresource in the URI of a request, for Python and for Postgres."""

_SUBRESOURCE: Final = re.compile(SUBRESOURCE)


def subresource_of(uri: str) -> str:
    """Return the subresource that a request named in its URI: status, scale, eviction; "" for none."""
    found = _SUBRESOURCE.search(uri)
    return found[1] if found else ""


TEXTS: Final[dict[str, Callable[[Record], tuple[str, ...]]]] = {
    "namespace": lambda record: (record.key.namespace,),
    "name": lambda record: (record.key.name,),
    "uid": lambda record: (record.uid,),
    "user_name": _of_who("user"),
    "actor": _of_who("user", "impersonator"),
    "subresource": lambda record: (subresource_of(record.who.request_uri) if record.who is not None else "",),
    "impersonator": _of_who("impersonator"),
    "verb": _of_who("verb"),
    "user_agent": _of_who("user_agent"),
    "source_address": _of_who("source_address"),
    "field_manager": _of_who("field_manager"),
    "audit_id": _of_who("audit_id"),
    "reason": _of_who("reason"),
}
"""The columns with text conditions, each with a function that returns its texts from a record."""


# -- retained ----------------------------------------------------------------------------------------------------------
#
# The marks of retention as conditions of a query: no change at or below its resource's mark is found.
#
# Rows below a mark stay stored until their partition is dropped, and those copied forward for longer. Reads of the
# past, watches and SQL hide them; so do searches for changes, and counts of them.
#
#     marks    events 900, pods 700, all others 300
#     after    300: no row at or below it is in history
#     floors   ((900, ("events",)), (700, ("pods",)))
#     rest     0: ``after`` is enough for all others


def within_history(query: ChangeQuery, head: Head) -> ChangeQuery:
    """Return the query restricted to the changes above the marks."""
    if query.resources:
        marks = {resource: head.compacted_for(resource) for resource in query.resources}
        after = max(query.after, min(marks.values()))
        return replace(query, after=after, floors=_floors(marks, after))
    marks = {name: mark for name, mark in head.compacted_of.items() if name not in query.not_resources}
    after = max(query.after, min([head.compacted, *marks.values()]))
    rest = head.compacted if head.compacted > after else 0
    return replace(query, after=after, floors=_floors(marks, after), rest=rest, named=tuple(sorted(marks)) * bool(rest))


def _floors(marks: dict[str, int], after: int) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Return the marks above ``after``, each with its resources."""
    return tuple(
        (mark, tuple(sorted(name for name, its_mark in marks.items() if its_mark == mark)))
        for mark in sorted(set(marks.values()), reverse=True)
        if mark > after
    )


# -- chunks ------------------------------------------------------------------------------------------------------------
#
# Chunks: the results of reads that end at a number of rows or of bytes, which bounds the memory of large objects.


T = TypeVar("T")
U = TypeVar("U")

CHUNK_BYTES = 2 * 1024 * 1024
"""Bytes of objects after which a read ends: two ConfigMaps of the largest size. The next row begins the next read."""


class Chunk(list[T]):
    """Rows of a read.

    ``cut``: it ended because of their bytes, and more rows may follow.
    ``until``: no other row follows up to this revision, even if the read was to end before; 0: not known.
    """

    cut = False
    until = 0

    def map(self, change: Callable[[T], U]) -> Chunk[U]:
        """Return the same chunk of other rows."""
        changed = Chunk(map(change, self))
        changed.cut, changed.until = self.cut, self.until
        return changed

    def is_last(self, limit: int) -> bool:
        """Return True if nothing follows a read of at most ``limit`` rows."""
        return len(self) < limit and not self.cut


def bounded(rows: Iterable[T], limit: int, size: Callable[[T], int]) -> Chunk[T]:
    """Return the first rows: at most ``limit``, up to the one that reaches CHUNK_BYTES."""
    chunk: Chunk[T] = Chunk()
    total = 0
    for row in rows:
        if len(chunk) == limit:
            break
        if total >= CHUNK_BYTES:
            chunk.cut = True
            break
        chunk.append(row)
        total += size(row)
    return chunk


def record_size(record: Record) -> int:
    return len(record.body)


def pair_size(pair: tuple[Record, Record | None]) -> int:
    """Return the bytes of a record and of the one it replaced."""
    record, previous = pair
    return len(record.body) + (len(previous.body) if previous is not None else 0)
