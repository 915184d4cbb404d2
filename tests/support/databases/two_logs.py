"""A server in one process with two logs: Events and Leases are in another one (docs/databases.md)."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from in_process import InProcess, open_server

from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.layout import SPAN
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.queries.changes import ChangeQuery, Chunk
from kubechronicle.eventlog.records import Batch, BatchResult, Head, Record
from kubechronicle.ops.server.databases.units import OtherDatabase

LEASE_RESOURCE = "leases.coordination.k8s.io"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS = "/api/v1/namespaces/default/events"
REVISIONS = "/apis/history.kubechronicle.dev/v1/namespaces/default/revisions"
HELD = ("events", LEASE_RESOURCE)


def lease(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {"holderIdentity": "a"}}


def event(name: str) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u"}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": about,
        "reason": "R",
        "type": "Normal",
    }


class Outage(MemoryLog):
    """A log whose database may be away."""

    away = False

    async def head(self) -> Head:
        self._check()
        return await super().head()

    async def append(self, batch: Batch) -> BatchResult:
        self._check()
        return await super().append(batch)

    async def changes(self, query: ChangeQuery, *, limit: int) -> Chunk[tuple[Record, Record | None]]:
        self._check()
        return await super().changes(query, limit=limit)

    def _check(self) -> None:
        if self.away:
            raise LogUnavailable("the database is away")


def begun() -> MemoryStore:
    """Return the store of a log that begins behind the revisions of the main one."""
    store = MemoryStore()
    store.revision = SPAN
    store._hashes = {SPAN: hashlib.sha256(b"begun").digest()}
    return store


@asynccontextmanager
async def two_logs(
    main: MemoryStore | None = None, other: MemoryStore | None = None, **options: Any
) -> AsyncIterator[tuple[InProcess, Outage]]:
    log = Outage(other or begun())
    database = OtherDatabase(name="events,leases", log=log, resources=HELD, place=1)
    async with open_server(main or MemoryStore(), others=[database], **options) as server:
        yield server, log
