"""Staging: tables beside the log in which the import of a running cluster gathers its objects, so that it can go on.

An import that is interrupted finds there what it has read. The log itself stays empty until the last step, which moves
everything in one transaction. Contents are staged as they will be stored, encrypted if so configured.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.eventlog.errors import SetupError
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.eventlog.records import Key, Operation
from kubechronicle.eventlog.transfer.founding import ImportedChange

CHUNK: Final = 500

_MAKE: Final = """
create schema if not exists kubechronicle_import;
create table if not exists kubechronicle_import.source (one boolean primary key default true check (one),
    name text not null, identity text not null, revision bigint not null);
create table if not exists kubechronicle_import.objects (
    resource text collate "C" not null, namespace text collate "C" not null, name text collate "C" not null,
    revision bigint not null, uid text not null, at timestamptz not null, manager text not null, body text not null,
    as_of bigint not null,
    primary key (resource, namespace, name));
create index if not exists objects_revision on kubechronicle_import.objects (revision);
create table if not exists kubechronicle_import.done (path text primary key)
"""
_DROP: Final = "drop schema if exists kubechronicle_import cascade"
_COLUMNS: Final = "resource, namespace, name, revision, uid, at, manager, body"
# $1 … $8 one list per column, $9 the revision of the list.
_PUT: Final = f"""
insert into kubechronicle_import.objects ({_COLUMNS}, as_of)
select u.*, $9::bigint from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::timestamptz[],
    $7::text[], $8::text[]) u
on conflict (resource, namespace, name) do update set revision = excluded.revision, uid = excluded.uid,
    at = excluded.at, manager = excluded.manager, body = excluded.body, as_of = excluded.as_of
"""
# Objects of one revision are of two stores; only the first can keep it.
_MOVE_DOUBLES: Final = """
update kubechronicle_import.objects o set revision = 0 where exists (select from kubechronicle_import.objects p
    where p.revision = o.revision and p.revision > 0
        and (p.resource, p.namespace, p.name) < (o.resource, o.namespace, o.name))
"""
_NEXT: Final = f"""
select {_COLUMNS} from kubechronicle_import.objects
where revision > $1 order by revision limit {CHUNK}
"""
_MOVED: Final = f"select {_COLUMNS} from kubechronicle_import.objects where revision = 0 order by 1, 2, 3"


@dataclass(slots=True)
class Staging:
    """Made by ``open_staging``. ``revision``: the one as of which the source is read."""

    session: PostgresSession
    revision: int

    async def done(self) -> set[str]:
        """Return the paths of the lists that were read completely."""
        return {row[0] for row in await self.session.fetch("select path from kubechronicle_import.done")}

    async def put(self, objects: Sequence[tuple[Any, ...]]) -> None:
        """Stage objects, with the columns of _COLUMNS. ``revision`` 0: the object gets a new one."""
        if objects:
            await self.session.fetch(_PUT, *map(list, zip(*objects, strict=True)), self.revision)

    async def finish(self, path: str, stored: Sequence[str]) -> None:
        """Note that a list was read; forget objects of an earlier one that are gone. ``stored``: its resources here."""
        await self.session.fetch(
            "delete from kubechronicle_import.objects where resource = any ($1::text[]) and as_of <> $2",
            list(stored),
            self.revision,
        )
        await self.session.fetch("insert into kubechronicle_import.done values ($1) on conflict do nothing", path)

    async def begin_again(self, revision: int) -> None:
        """Read everything as of another revision. Objects that have not changed are only confirmed."""
        await self.session.execute("delete from kubechronicle_import.done")
        await self.session.fetch("update kubechronicle_import.source set revision = $1", revision)
        self.revision = revision

    async def count(self) -> int:
        return int((await self.session.fetch("select count(*) from kubechronicle_import.objects"))[0][0])

    async def objects(self) -> AsyncGenerator[ImportedChange, None]:
        """Yield the objects that keep their revisions, in revision order."""
        await self.session.execute(_MOVE_DOUBLES)
        after = 0
        while rows := await self.session.fetch(_NEXT, after):
            for row in rows:
                yield _change(row, row["revision"])
            after = rows[-1]["revision"]

    async def moved(self) -> Sequence[ImportedChange]:
        """Return the objects that get new revisions, after ``revision``."""
        rows = await self.session.fetch(_MOVED)
        return [_change(row, self.revision + count) for count, row in enumerate(rows, 1)]

    async def drop(self) -> None:
        await self.session.execute(_DROP)


async def open_staging(session: PostgresSession, *, name: str, identity: str, revision: int, restart: bool) -> Staging:
    """Begin an import as of ``revision``, or go on with an unfinished one. SetupError: that is of another cluster."""
    if restart:
        await session.execute(_DROP)
    await session.execute(_MAKE)
    await session.fetch(
        "insert into kubechronicle_import.source (name, identity, revision) values ($1, $2, $3) on conflict do nothing",
        name,
        identity,
        revision,
    )
    begun = (await session.fetch("select name, identity, revision from kubechronicle_import.source"))[0]
    if begun["identity"] != identity:
        raise SetupError(f"an import from another cluster, {begun['name']}, is unfinished; --restart forgets it")
    return Staging(session, begun["revision"])


def _change(row: Any, revision: int) -> ImportedChange:
    return ImportedChange(
        revision=revision,
        create_revision=revision,
        version=1,
        previous_revision=0,
        operation=Operation.CREATE,
        key=Key(row["resource"], row["namespace"], row["name"]),
        uid=row["uid"],
        body=row["body"].encode(),
        at=row["at"],
        manager=row["manager"],
    )
