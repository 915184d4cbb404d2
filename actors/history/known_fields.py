"""The fields that versions of objects had, so that a path which none of them had is recognised as a mistake.

A selection of changes by a field finds nothing for a mistyped path, as for a field that nobody changed. The versions
tell these apart. They are read newest first, MAX_VERSIONS at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import orjson

from kubechronicle.actors.history.log_changes import CHUNK, LogChanges
from kubechronicle.api.history.field_values import values_at
from kubechronicle.api.history.suggestions import fields_of, nearest_field
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import Record

MAX_VERSIONS: Final = 10_000
"""Versions that one request reads."""
MAX_LISTED: Final = 100
"""Versions of which all fields are listed, to find the nearest one."""
MAX_FIELDS: Final = 1000
"""Fields among which the nearest one is searched."""


@dataclass(slots=True)
class _Seen:
    """The fields of the versions read so far. ``missing``: paths that no version had."""

    missing: list[str]
    known: dict[str, None] = field(default_factory=dict)
    versions: int = 0

    def add(self, record: Record) -> None:
        obj = orjson.loads(record.body)
        self.missing = [path for path in self.missing if not values_at(obj, path)]
        self.versions += 1
        if self.versions <= MAX_LISTED and len(self.known) < MAX_FIELDS:
            self.known.update(dict.fromkeys(fields_of(obj)))

    def nearest(self) -> list[str]:
        fields = list(self.known)[:MAX_FIELDS]
        return [nearest_field(path, fields) for path in self.missing]


async def unknown_fields(
    log: RevisionLog, reads: LogChanges, query: ChangeQuery, paths: Sequence[str]
) -> dict[str, Any]:
    """Return which of the paths no version of the selected objects had, each with the nearest field (or "").

    ``versions``: the number of versions that were read and may be read by the client.
    ``whole``: all versions were read.
    """
    seen, query = _Seen(list(paths)), replace(query, newest_first=True, with_replaced=False)
    scanned, whole = 0, True
    while seen.missing:
        chunk = await log.changes(query, limit=CHUNK)
        for record, _ in chunk:
            if record.erased or record.problem or not await reads.may_read(record):
                continue
            await reads.turn.begin(len(record.body))
            await reads.turn.run(len(record.body), partial(seen.add, record))
        if chunk.is_last(CHUNK):
            break
        scanned += len(chunk)
        if scanned >= MAX_VERSIONS:
            whole = False
            break
        query = replace(query, until=chunk[-1][0].revision - 1)
    missing = list(seen.missing)
    if missing:
        size = sum(map(len, seen.known))
        await reads.turn.begin(size)
        nearest = await reads.turn.run(size, seen.nearest)
    else:
        nearest = []
    return {
        "versions": seen.versions,
        "whole": whole,
        "unknown": [{"field": path, "nearest": near} for path, near in zip(missing, nearest, strict=True)],
    }
