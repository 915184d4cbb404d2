"""Migrations of the database schema: numbered SQL files, applied in order, each in a transaction of its own.

A new database gets their sum, schema.sql, in one transaction, which records all of them as applied.

Invariants: every migration is applied exactly once, however many servers start at once (each transaction first locks
the table of migrations, in which readers of the log have no rights). A migration that was applied never changes (its
digest is recorded and compared).

A server may meet a schema that a newer version migrated: after a downgrade, or when it restarts during an upgrade. Each
migration says in a line of its text which schema's servers work beside it (``SERVES_FROM``), and this is recorded. So
the older server can tell whether it may start, although it does not know the migration.

A migration that waits for a lock stalls the appends behind it. So it waits for seconds only, then ends the queries of
readers, and is tried again.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from typing import Final

import trio

from kubechronicle.eventlog.errors import LogError, SetupError
from kubechronicle.eventlog.postgres.locks import CREATES_SCHEMAS, RETRY_SECONDS, is_held_by_earlier_version
from kubechronicle.eventlog.postgres.session import ConnectionLost, LockTimeout, PostgresSession

logger = logging.getLogger(__name__)

PACKAGE = "kubechronicle.migrations"
OLDEST_POSTGRES = 15
FORMER_LOCK = 0x6B636D67  # "kcmg": the advisory lock of versions up to 0.1 (locks.py)
LOCK_TIMEOUT = 3.0  # seconds
ATTEMPTS = 20

WHOLE: Final = "schema.sql"
ENGINES: Final = {"-YB-": "YugabyteDB", "Redshift": "Redshift", "Greenplum": "Greenplum"}
"""Names of engines derived from Postgres, by their marks in version(): PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64-…"""

_EXISTS = "select to_regclass('kubechronicle.migrations') is not null"
_BEGIN_NEW: Final = "begin; set local statement_timeout = 0; set local lock_timeout = 0"
# The lock waits for other servers, however long their migrations take. It conflicts with writers, not with readers.
_BEGIN = """
begin; set local statement_timeout = 0; set local lock_timeout = 0;
lock table kubechronicle.migrations in share row exclusive mode
"""
# Sessions with locks on the log, of roles that may not append to it.
_END_READERS = """
select a.usename, pg_terminate_backend(a.pid) from pg_stat_activity a
where a.pid <> pg_backend_pid()
    and not has_table_privilege(a.usesysid, to_regclass('kubechronicle.head')::oid, 'update')
    and exists (select from pg_locks l join pg_class c on c.oid = l.relation
        where l.pid = a.pid and l.granted and c.relnamespace = 'kubechronicle'::regnamespace
            and l.database = (select oid from pg_database where datname = current_database()))
"""
# Before migration 19 there is no column serves_from.
_APPLIED = """
select number, name, sha256, (to_jsonb(m) ->> 'serves_from')::int as serves_from
from kubechronicle.migrations m order by number
"""
# "-- Servers of schema 0018 work beside this."
SERVES_FROM = re.compile(r"^-- Servers of schema (\d{4}) work beside this\.$", re.MULTILINE)
FIRST_WITH_SERVES_FROM = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One SQL file."""

    number: int
    name: str
    script: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.script.encode()).hexdigest()

    @property
    def record(self) -> str:
        """The statement that records it as applied."""
        values = f"({self.number}, '{self.name}', '{self.sha256}'"
        if self.number < FIRST_WITH_SERVES_FROM:
            return f"insert into kubechronicle.migrations (number, name, sha256) values {values})"
        columns = "(number, name, sha256, serves_from)"
        return f"insert into kubechronicle.migrations {columns} values {values}, {self.serves_from or 'null'})"

    @property
    def serves_from(self) -> int | None:
        """The oldest schema whose servers work on the schema after this migration; None: no older servers do."""
        found = SERVES_FROM.search(self.script)
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    """A migration that is recorded in the database."""

    sha256: str
    serves_from: int | None = None


def migrations() -> list[Migration]:
    """Return the migrations of this version of kubechronicle, in order."""
    known = []
    for file in resources.files(PACKAGE).iterdir():
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            known.append(Migration(number=int(match[1]), name=match[2], script=file.read_text(encoding="utf-8")))
    known.sort(key=lambda migration: migration.number)
    if [migration.number for migration in known] != list(range(1, len(known) + 1)):
        raise SetupError("the installation of kubechronicle is incomplete: migrations are missing; install it again")
    return known


def pending(known: list[Migration], applied: Mapping[int, AppliedMigration]) -> list[Migration]:
    """Return the migrations to apply. ``applied``: by number. SetupError: they do not match."""
    newer = newer_than(known, applied)
    if not all(
        record.serves_from is not None and record.serves_from <= len(known)
        for number, record in applied.items()
        if number > len(known)
    ):
        raise SetupError(
            f"the database was migrated by a newer kubechronicle (to {newer}, known here: {len(known)}); "
            "upgrade this one"
        )
    for migration in known:
        if migration.number in applied and applied[migration.number].sha256 != migration.sha256:
            raise SetupError(
                f"migration {migration.number:04}_{migration.name} differs from the one applied to this database; "
                "install the version of kubechronicle it was made with"
            )
    return [migration for migration in known if migration.number not in applied]


def newer_than(known: list[Migration], applied: Mapping[int, AppliedMigration]) -> int:
    """Return the number of the newest migration that is not known here; 0: all are."""
    return max((number for number in applied if number > len(known)), default=0)


def show_nothing(done: int, total: int) -> None:
    """Show no progress."""


async def migrate_session(session: PostgresSession, show: Callable[[int, int], None] = show_nothing) -> list[str]:
    """Apply the missing migrations; return their names. SetupError, with the message of Postgres, if one fails.

    A new database needs none: its result is the name of the file with the whole schema.
    ``show`` is called with the number of applied migrations, and of all.
    """
    await check_version(session)
    if await _is_made(session):
        return [WHOLE]
    if newer := newer_than(migrations(), await _applied_of(session)):
        logger.warning(
            "the database was migrated by a newer kubechronicle (to %s, known here: %s); this version works beside it",
            newer,
            len(migrations()),
        )
    applied = []
    while todo := await _pending_of(session):
        show(len(migrations()) - len(todo), len(migrations()))
        if name := await _apply_first(session, todo[0]):
            applied.append(name)
    return applied


async def _is_made(session: PostgresSession) -> bool:
    """Make the schema of a new database. False: there is one. SetupError, with the message of Postgres.

    Of servers that start together, one makes it; the others wait for its commit, and then fail and find it.
    """
    if (await session.fetch(_EXISTS))[0][0]:
        return False
    script = resources.files(PACKAGE).joinpath(WHOLE).read_text(encoding="utf-8")
    records = ";".join(migration.record for migration in migrations())
    try:
        await session.execute(f"{_BEGIN_NEW};\n{script}\n;{records}; commit")
    except ConnectionLost:
        raise
    except LogError as error:
        if session.closed:
            raise
        await session.execute("rollback")
        if (await session.fetch(_EXISTS))[0][0]:
            return False
        raise SetupError(f"{WHOLE} failed: {error}") from error
    return True


async def _pending_of(session: PostgresSession) -> list[Migration]:
    return pending(migrations(), await _applied_of(session))


async def _applied_of(session: PostgresSession) -> dict[int, AppliedMigration]:
    rows = await session.fetch(_APPLIED)
    return {row["number"]: AppliedMigration(row["sha256"], row["serves_from"]) for row in rows}


async def _apply_first(session: PostgresSession, first: Migration) -> str:
    """Apply a migration in one transaction; return its name, "" if another server has applied it. SetupError."""
    for left in reversed(range(ATTEMPTS)):
        try:
            return await _apply(session, first)
        except LockTimeout as error:
            if not left:
                raise SetupError(f"migration {first.number:04}_{first.name} waits for a query: {error}") from error
            await _end_readers(session)
    raise AssertionError("unreachable")


async def _apply(session: PostgresSession, migration: Migration) -> str:
    name = f"{migration.number:04}_{migration.name}"
    await session.execute(_BEGIN)
    try:
        while await is_held_by_earlier_version(session, FORMER_LOCK, rights=CREATES_SCHEMAS):  # noqa: ASYNC110
            await trio.sleep(RETRY_SECONDS)
        if migration.number in {row["number"] for row in await session.fetch(_APPLIED)}:
            await session.execute("rollback")
            return ""
        await session.execute(
            f"set local lock_timeout = '{LOCK_TIMEOUT:g}s';\n{migration.script}\n;{migration.record}; commit"
        )
    except LogError as error:
        if not session.closed:
            await session.execute("rollback")
        if isinstance(error, LockTimeout | ConnectionLost):
            raise
        raise SetupError(f"migration {name} failed: {error}") from error
    return name


async def _end_readers(session: PostgresSession) -> None:
    """End the queries of readers that hold locks on the log: a reader must not stop the start of a server.

    Without the right to do so, the migration is only tried again.
    """
    with suppress(LogError):
        ended = [row["usename"] for row in await session.fetch(_END_READERS)]
        if ended:
            logger.warning("ended queries of %s, which blocked a migration", ", ".join(sorted(set(ended))))
    await trio.sleep(RETRY_SECONDS)


def other_engine(version: str) -> str:
    """Return the name of an engine that only speaks Postgres' protocol; "" for Postgres. ``version``: of version()."""
    if not version.startswith("PostgreSQL "):  # CockroachDB CCL v25.2.1 (x86_64-pc-linux-gnu, …)
        return version.split(" ", 1)[0] or "unknown"
    return next((name for mark, name in ENGINES.items() if mark in version), "")


async def check_version(session: PostgresSession) -> None:
    """SetupError: it is no Postgres, or too old, or the encoding of the database is not UTF-8."""
    shown = (await session.fetch("select version()"))[0][0]
    engine = other_engine(shown)
    if engine:
        raise SetupError(f"the database is {engine}; the log needs Postgres itself (docs/engines.md says why)")
    version = int((await session.fetch("select current_setting('server_version_num')::int"))[0][0])
    if version < OLDEST_POSTGRES * 10000:
        raise SetupError(
            f"Postgres {version // 10000} is too old: kubechronicle needs {OLDEST_POSTGRES} or newer; "
            "upgrade the database"
        )
    encoding = (await session.fetch("select current_setting('server_encoding')"))[0][0]
    if encoding != "UTF8":
        raise SetupError(f"the database has the encoding {encoding}; create it with encoding 'UTF8'")


async def check_schema(session: PostgresSession) -> None:
    """SetupError: this version cannot work with the database."""
    await check_version(session)
    known = (await session.fetch(_EXISTS))[0][0]
    applied = await _applied_of(session) if known else {}
    if todo := pending(migrations(), applied):
        raise SetupError(
            f"the database lacks {len(todo)} migration(s), beginning with {todo[0].number:04}_{todo[0].name}; "
            "run `kubechronicle migrate`"
        )
