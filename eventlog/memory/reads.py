"""Recorded reads in memory, for tests; satisfies ReadLog."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import trio

from kubechronicle.eventlog.queries.reads import ReadQuery, ReadRecord, Recording


class MemoryReads:
    def __init__(self) -> None:
        self._reads: list[ReadRecord] = []
        self._recordings: dict[UUID, Recording] = {}

    async def record(self, reads: Sequence[ReadRecord], recording: Recording) -> None:
        await trio.lowlevel.checkpoint()
        for read in reads:
            # Postgres keeps microseconds: finer times would not be those of the continue tokens.
            self._reads.append(read._replace(id=len(self._reads) + 1, at=round(read.at * 1_000_000) / 1_000_000))
        self._recordings[recording.id] = recording

    async def retain(self, days: int) -> list[str]:
        await trio.lowlevel.checkpoint()
        return []

    async def list(self, query: ReadQuery, *, limit: int) -> Sequence[ReadRecord]:
        await trio.lowlevel.checkpoint()
        found = [read for read in self._reads if query.matches(read) and _is_before(read, query)]
        return sorted(found, key=lambda read: (read.at, read.id), reverse=True)[:limit]

    async def recordings(self, *, limit: int) -> Sequence[Recording]:
        await trio.lowlevel.checkpoint()
        return sorted(self._recordings.values(), key=lambda each: each.since, reverse=True)[:limit]


def _is_before(read: ReadRecord, query: ReadQuery) -> bool:
    if query.before is None:
        return True
    return (datetime.fromtimestamp(read.at, UTC), read.id) < query.before
