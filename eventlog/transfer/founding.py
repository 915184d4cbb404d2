"""Founding a log: the objects and the history of another cluster, written into an empty log at their own revisions.

    jump 1…C          the objects as of revision C, as founding rows (integrity/jumps.py); C is compacted
    changes C+1…H     as rows of the log, chained as every row; the revisions without a change are jumps

The rows bypass admission and ``append``, which would give them other revisions and times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from kubechronicle.eventlog.integrity import jumps
from kubechronicle.eventlog.integrity.digests import digest_of, usual_class
from kubechronicle.eventlog.integrity.jumps import Jump
from kubechronicle.eventlog.records import Key, Operation
from kubechronicle.eventlog.transfer.loader import Loader
from kubechronicle.eventlog.transfer.stored_rows import StoredRow, of_columns

CHUNK: Final = 500
"""Rows inserted by one statement."""
NO_HASH: Final = b""
"""In the place of the hash of a founding row, which no chain goes through."""
AGENT: Final = "kubechronicle import"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedChange:
    """One change. ``body``: as stored, perhaps encrypted. ``at``: its time, as far as it is known."""

    revision: int
    create_revision: int
    version: int
    previous_revision: int
    operation: Operation
    key: Key
    uid: str
    body: bytes
    at: datetime
    manager: str = ""


@dataclass(slots=True)
class Founder:
    """Call ``add_object`` in revision order, ``end_objects``, then ``add_change`` and ``add_gap``, and ``finish``."""

    loader: Loader
    source: str
    now: datetime
    revision: int = 0
    changes: int = 0
    objects: int = 0
    committed_at: datetime = field(init=False)
    hash: bytes = field(init=False)
    _digests: Any = field(default_factory=sha256)
    _rows: list[StoredRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hash = sha256(self.loader.log_id.bytes).digest()
        self.committed_at = datetime.fromtimestamp(0, self.now.tzinfo)

    async def add_object(self, change: ImportedChange) -> None:
        """Add a founding row."""
        row = self._row(change, min(change.at, self.now), NO_HASH)
        self._digests.update(row["digest"])
        self.objects += 1
        self._rows.append(row)
        if len(self._rows) >= CHUNK:
            await self._flush_objects()

    async def end_objects(self, compacted: int) -> None:
        """End the objects as of the revision ``compacted``, at least 1."""
        await self._flush_objects()
        digest = self._digests.digest()
        jump = jumps.make(
            first=1, last=compacted, reason=jumps.IMPORT, at=self.now, source=self.source, objects=self.objects,
            digest=digest,
        )  # fmt: skip
        await self._add_jump(jump)

    async def add_change(self, change: ImportedChange) -> None:
        """Add a change of the history. Its time is moved after those before it, because times never decrease."""
        if change.revision > self.revision + 1:
            await self.add_gap(change.revision - 1)
        self.committed_at = max(self.committed_at, min(change.at, self.now))
        row = self._row(change, self.committed_at, NO_HASH)
        self.hash = sha256(self.hash + row["digest"]).digest()
        self._rows.append(StoredRow((*row[:-1], self.hash)))
        self.revision = change.revision
        self.changes += 1
        if len(self._rows) >= CHUNK:
            await self._flush_changes()

    async def add_gap(self, last: int) -> None:
        """Pass over the revisions up to ``last``, which changed no object."""
        await self._flush_changes()
        await self._add_jump(
            jumps.make(first=self.revision + 1, last=last, reason=jumps.GAP, at=self.now, source=self.source)
        )

    async def finish(self, compacted: int) -> None:
        await self._flush_changes()
        await self.loader.finish(
            revision=self.revision, hash_=self.hash, committed_at=self.now, compacted=compacted, compacted_of={}
        )

    async def _add_jump(self, jump: Jump) -> None:
        self.hash = sha256(self.hash + jump.link).digest()
        self.revision = jump.last
        await self.loader.add_jump(jump, self.hash)

    async def _flush_objects(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            await self.loader.add_kept(rows)
            revisions, digests = [row["revision"] for row in rows], [row["digest"] for row in rows]
            await self.loader.add_digests(revisions, digests, [row["class"] for row in rows])

    async def _flush_changes(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            await self.loader.add_rows(rows)

    def _row(self, change: ImportedChange, at: datetime, hash_: bytes) -> StoredRow:
        columns: dict[str, Any] = {
            "revision": change.revision,
            "create_revision": change.create_revision,
            "version": change.version,
            "previous_revision": change.previous_revision,
            "committed_at": at,
            "operation": int(change.operation),
            "resource": change.key.resource,
            "namespace": change.key.namespace,
            "name": change.key.name,
            "uid": change.uid,
            "user_groups": [],
            "user_extra": None,
            "user_agent": AGENT,
            "field_manager": change.manager,
            "object": change.body.decode(),
            "class": usual_class(change.key.resource),
            "cause": 0,
        }
        texts = ("user_name", "user_uid", "impersonator", "verb", "request_uri", "source_address", "audit_id", "reason")
        columns |= dict.fromkeys(texts, "")
        row = of_columns(columns, b"", hash_)
        return of_columns(columns, digest_of(row), hash_)
