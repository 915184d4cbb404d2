"""Loader: writes rows, digests and jumps of another log, or of an import, into an empty one. One transaction.

    async with loading(session) as loader:      # commits at the end, or leaves nothing
        await loader.add_rows(rows)

It bypasses ``append``: revisions, times, digests and hashes are given. So the log must be empty, and stays locked until
the commit. A server that starts meanwhile waits, and then finds the loaded log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

from kubechronicle.eventlog.errors import SetupError
from kubechronicle.eventlog.integrity.erasures import Tombstone
from kubechronicle.eventlog.integrity.jumps import Jump
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.eventlog.transfer.stored_rows import NAMES

_TYPES: Final = {
    "revision": "bigint", "create_revision": "bigint", "version": "bigint", "previous_revision": "bigint",
    "committed_at": "timestamptz", "operation": "smallint", "cause": "bigint", "digest": "bytea",
    "hash": "bytea",
}  # fmt: skip
_CASTS: Final = {
    "user_groups": "array(select json_array_elements_text(u.user_groups::json))",
    "user_extra": "u.user_extra::json",
    "object": "u.object::json",
    "class": "coalesce(nullif(u.class, ''), (select c.class from kubechronicle.resource_classes c"
    " where c.resource = u.resource), 'long')",
}
_GROUPS: Final = NAMES.index("user_groups")
# $1 …: one list for each of NAMES.
_INSERT: Final = f"""
insert into kubechronicle.{{}} ({", ".join(NAMES)})
select {", ".join(_CASTS.get(name, f"u.{name}") for name in NAMES)}
from unnest({", ".join(f"${at}::{_TYPES.get(name, 'text')}[]" for at, name in enumerate(NAMES, 1))})
    as u ({", ".join(NAMES)})
"""
_RECORD_MARKS: Final = """
select kubechronicle.record_marks(current_setting('application_name'), 'restored or imported')
"""
_DELETE_LIVE: Final = """
delete from kubechronicle.live l using unnest($1::text[], $2::text[], $3::text[]) u (resource, namespace, name)
where l.resource = u.resource and l.namespace = u.namespace and l.name = u.name
"""
_INSERT_LIVE: Final = """
insert into kubechronicle.live (resource, namespace, name, revision, create_revision, version)
select * from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
"""
# $1 revisions, $2 digests, $3 classes.
_DIGESTS: Final = """
insert into kubechronicle.tombstones as t
select u.revision / 1000, u.class, array_agg(u.revision order by u.revision), array_agg(u.digest order by u.revision)
from unnest($1::bigint[], $2::bytea[], $3::text[]) u (revision, digest, class) group by 1, 2
on conflict (thousand, class) do update set revisions = t.revisions || excluded.revisions,
    digests = t.digests || excluded.digests
"""
_JUMP: Final = "insert into kubechronicle.jumps (first, last, about, hash) values ($1, $2, $3, $4)"
_PARTITIONS_FROM: Final = """
update kubechronicle.retention_classes set partitioned_until = $1 where partitioned_until < $1
"""
_PARTITIONED: Final = "update kubechronicle.head set partitioned_until = kubechronicle.partitions_due()"
_ERASED: Final = """
insert into kubechronicle.erased select * from unnest($1::bigint[], $2::text[]::uuid[], $3::bytea[], $4::bytea[])
"""
_HEAD: Final = """
update kubechronicle.head set revision = $1, hash = $2, committed_at = $3, compacted_long = $4, compacted_of = $5::jsonb
"""


class Loader:
    """Made by ``loading``. ``log_id``: the identity of the log."""

    def __init__(self, session: PostgresSession, log_id: UUID) -> None:
        self.session = session
        self.log_id = log_id
        self._partitioned_until = 0

    async def become(self, log_id: UUID) -> None:
        """Take over the identity of another log."""
        await self.session.fetch("update kubechronicle.head set log_id = $1", log_id)
        self.log_id = log_id

    async def add_kept(self, rows: Sequence[Any]) -> None:
        """Add rows copied forward, all before the rows of the log. They are live until a later row replaces them."""
        await self._insert("kept", rows)

    async def add_rows(self, rows: Sequence[Any]) -> None:
        """Add rows of the log, in revision order."""
        if rows[-1]["revision"] >= self._partitioned_until:
            await self.session.fetch("select kubechronicle.make_partitions_until($1)", rows[-1]["revision"])
            found = await self.session.fetch("select partitioned_until from kubechronicle.head")
            self._partitioned_until = found[0][0]
        await self._insert("log", rows)

    async def add_digests(self, revisions: Sequence[int], digests: Sequence[bytes], classes: Sequence[str]) -> None:
        """Add the digests of rows that are gone or were copied forward, each with its class."""
        await self.session.fetch(_DIGESTS, list(revisions), list(digests), list(classes))

    async def add_jump(self, jump: Jump, hash_: bytes) -> None:
        """Add a jump. Later partitions begin behind it."""
        await self.session.fetch(_JUMP, jump.first, jump.last, jump.about, hash_)
        await self.begin_partitions(jump.last + 1)

    async def begin_partitions(self, revision: int) -> None:
        """Let the next partition begin at ``revision``, if none covers it."""
        await self.session.fetch(_PARTITIONS_FROM, revision)
        await self.session.fetch(_PARTITIONED)

    async def add_erased(self, tombstones: Sequence[Tombstone]) -> None:
        columns = list(map(list, zip(*tombstones, strict=True)))
        await self.session.fetch(_ERASED, *columns)

    async def finish(
        self,
        *,
        revision: int,
        hash_: bytes,
        committed_at: datetime,
        compacted: int,
        compacted_of: Mapping[str, int] | None = None,
    ) -> None:
        """Set the head."""
        marks = orjson.dumps(dict(compacted_of or {})).decode()
        await self.session.fetch(_HEAD, revision, hash_, committed_at, compacted, marks)
        await self.session.fetch(_RECORD_MARKS)

    async def _insert(self, table: str, rows: Sequence[Any]) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)]
        columns[_GROUPS] = [orjson.dumps(groups).decode() for groups in columns[_GROUPS]]
        await self.session.fetch(_INSERT.format(table), *columns)
        last = {(row["resource"], row["namespace"], row["name"]): row for row in rows}
        await self.session.fetch(_DELETE_LIVE, *map(list, zip(*last, strict=True)))
        live = [
            (*key, row["revision"], row["create_revision"], row["version"])
            for key, row in last.items()
            if row["operation"] != 3
        ]
        if live:
            await self.session.fetch(_INSERT_LIVE, *map(list, zip(*live, strict=True)))


@asynccontextmanager
async def loading(session: PostgresSession) -> AsyncIterator[Loader]:
    """Lock an empty log, and commit at the end of the block. SetupError: it is not empty."""
    await session.execute("begin; set local statement_timeout = 0; set local lock_timeout = '10s'")
    try:
        (head,) = await session.fetch("select log_id, revision from kubechronicle.head for update")
        if head["revision"]:
            raise SetupError(
                f"the database is not empty: its newest revision is {head['revision']}; "
                "name an empty --database-url, or another --data-dir"
            )
        yield Loader(session, head["log_id"])
        await session.execute("commit")
    except BaseException:
        session.terminate()
        raise
