"""The marks of retention as conditions of a query: no change at or below its resource's mark is found.

Rows below a mark stay stored until their partition is dropped, and those copied forward for longer. Reads of the past,
watches and SQL hide them; so do searches for changes, and counts of them.

    marks    events 900, pods 700, all others 300
    after    300: no row at or below it is in history
    floors   ((900, ("events",)), (700, ("pods",)))
    rest     0: ``after`` is enough for all others
"""

from __future__ import annotations

from dataclasses import replace

from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import Head


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
