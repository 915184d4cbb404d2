"""Writing a backup: one snapshot of the log, so that it is consistent at one revision, beside running servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import orjson
import trio

from kubechronicle.eventlog.integrity.erasures import Tombstone
from kubechronicle.eventlog.integrity.state_check import DROPS
from kubechronicle.eventlog.integrity.verify import ERASED, KEPT, StoredDigest, StoredJump, links
from kubechronicle.eventlog.postgres.session import PostgresSession, Row
from kubechronicle.eventlog.transfer.backup_file import (
    TABLES,
    BackupWriter,
    Digests,
    Header,
    Item,
    KeptHistory,
    Partition,
    TableRow,
)
from kubechronicle.eventlog.transfer.stored_rows import from_row

BATCH: Final = 500
"""Items that are packed at once, in a thread."""
CHUNK: Final = 1000

_HEAD: Final = """
select log_id, revision, hash, committed_at, compacted_long, compacted_of, clock_timestamp() as taken_at,
    (select max(number) from kubechronicle.migrations) as migration
from kubechronicle.head
"""
_CLASSES: Final = "select class, span, partitioned_until, dropped_until from kubechronicle.retention_classes"
_RESOURCES: Final = "select resource, class from kubechronicle.resource_classes where class <> 'long'"
_CONFIDENTIAL: Final = "select resource from kubechronicle.confidential_resources"
_PARTITIONS: Final = """
select substr(p.relname, 5)::text as class,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \\(''(\\d+)''\\)'))[1]::bigint as first,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \\(''(\\d+)''\\)'))[1]::bigint as until
from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
where i.inhparent in ('kubechronicle.log_long'::regclass, 'kubechronicle.log_short'::regclass)
order by 1, 2
"""
# The column id of reads is generated again.
_TABLES: Final = {
    "archived": "select to_jsonb(t)::text as line from kubechronicle.archived t",
    "reads": "select (to_jsonb(t) - 'id')::text as line from kubechronicle.reads t order by at, id",
    "read_recordings": "select to_jsonb(t)::text as line from kubechronicle.read_recordings t",
    "branches": "select to_jsonb(t)::text as line from kubechronicle.branches t",
    "mark_moves": "select to_jsonb(t)::text as line from kubechronicle.mark_moves t order by number",
    "branch_changes": "select to_jsonb(t)::text as line from kubechronicle.branch_changes t order by branch, revision",
}
assert set(_TABLES) == set(TABLES)


async def write_backup(
    session: PostgresSession, path: Path, *, progress: Callable[[int, int], None]
) -> tuple[Header, int]:
    """Write a backup; return its header and the size of the file. BackupError, LogUnavailable.

    ``progress``: called with the revision reached and the newest.
    """
    async with _snapshot(session):
        header = await _header(session)
        writer = await trio.to_thread.run_sync(BackupWriter, path, header)
        try:
            async with aclosing(_items(session)) as items:
                batch: list[Item] = []
                async for item in items:
                    batch.append(item)
                    if len(batch) >= BATCH:
                        await trio.to_thread.run_sync(writer.write, batch)
                        progress(_revision(batch), header.revision)
                        batch = []
                if batch:
                    await trio.to_thread.run_sync(writer.write, batch)
            return header, await trio.to_thread.run_sync(writer.finish)
        except BaseException:
            writer.abandon()
            raise


@asynccontextmanager
async def _snapshot(session: PostgresSession) -> AsyncIterator[None]:
    async with session.snapshot():
        # The lock keeps partitions from being dropped under a snapshot that does not see the copied rows yet.
        await session.execute(
            "lock table kubechronicle.log in access share mode; set local statement_timeout = 0;"
            "set local enable_sort = off; set local enable_seqscan = off"
        )
        yield


async def _header(session: PostgresSession) -> Header:
    (head,) = await session.fetch(_HEAD)
    classes = await session.fetch(_CLASSES)
    return Header(
        log_id=head["log_id"],
        revision=head["revision"],
        hash=bytes(head["hash"]),
        committed_at=head["committed_at"],
        taken_at=head["taken_at"],
        migration=head["migration"],
        compacted=head["compacted_long"],
        compacted_of=orjson.loads(head["compacted_of"]),
        spans={row["class"]: row["span"] for row in classes},
        partitioned_until={row["class"]: row["partitioned_until"] for row in classes},
        dropped_until={row["class"]: row["dropped_until"] for row in classes},
        partitions=[Partition(*row) for row in await session.fetch(_PARTITIONS)],
        classes={row["resource"]: row["class"] for row in await session.fetch(_RESOURCES)},
        confidential=[row["resource"] for row in await session.fetch(_CONFIDENTIAL)],
        drops=[(row["revision"], row["committed_at"], row["object"]) for row in await session.fetch(DROPS)],
    )


async def _items(session: PostgresSession) -> AsyncGenerator[Item, None]:
    """Yield everything in the order of the file."""
    async for row in _rows(session, KEPT):
        yield KeptHistory(from_row(row))
    async for row in _rows(session, ERASED):
        yield Tombstone(row[0], row[1], bytes(row[2]), bytes(row[3]))
    gathered: list[StoredDigest] = []
    async with aclosing(links(session)) as chain:
        async for link in chain:
            if isinstance(link, StoredDigest):
                gathered.append(link)
                if len(gathered) < CHUNK:
                    continue
            if gathered:
                yield _digests(gathered)
                gathered = []
            if isinstance(link, StoredJump):
                yield link
            elif not isinstance(link, StoredDigest):
                yield from_row(link)
    if gathered:
        yield _digests(gathered)
    for table, statement in _TABLES.items():
        async for row in _rows(session, statement):
            yield TableRow(table, orjson.loads(row["line"]))


def _digests(gathered: list[StoredDigest]) -> Digests:
    return Digests(
        [each.revision for each in gathered],
        [each.digest for each in gathered],
        [each.retention_class for each in gathered],
    )


async def _rows(session: PostgresSession, statement: str) -> AsyncGenerator[Row, None]:
    async with aclosing(session.rows(statement, chunk=CHUNK, size=_size)) as chunks:
        async for chunk in chunks:
            for row in chunk:
                yield row


def _size(row: Row) -> int:
    return max((len(value) for value in row if isinstance(value, str | bytes)), default=1)


def _revision(batch: list[Any]) -> int:
    """Return the revision of the last row of a batch; 0 if it has none."""
    last = batch[-1]
    if isinstance(last, Digests):
        return last.revisions[-1]
    return int(last["revision"]) if not isinstance(last, KeptHistory | Tombstone | StoredJump | TableRow) else 0
