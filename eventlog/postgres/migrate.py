"""Migrations of the database schema: numbered SQL files, applied in order, each in a transaction of its own.

Invariants: every migration is applied exactly once, however many servers start at once (an advisory lock is held).
A migration that was applied never changes (its digest is recorded and compared).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources

from kubechronicle.eventlog.errors import LogError, SetupError
from kubechronicle.eventlog.postgres.session import Session

PACKAGE = "kubechronicle.migrations"
OLDEST_POSTGRES = 15
ADVISORY_LOCK = 0x6B636D67  # "kcmg": arbitrary, but the same in every version of kubechronicle

_BOOTSTRAP = """
create schema if not exists kubechronicle;
create table if not exists kubechronicle.migrations (
    number     int primary key,
    name       text not null,
    sha256     text not null,
    applied_at timestamptz not null default now()
)
"""
_APPLIED = "select number, name, sha256 from kubechronicle.migrations order by number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One SQL file."""

    number: int
    name: str
    script: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.script.encode()).hexdigest()


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


def pending(known: list[Migration], applied: dict[int, str]) -> list[Migration]:
    """Return the migrations to apply. ``applied``: digests of the applied ones, by number. SetupError: they do not
    match."""
    if newer := [number for number in applied if number > len(known)]:
        raise SetupError(
            f"the database was migrated by a newer kubechronicle (to {max(newer)}, known here: {len(known)}); "
            "upgrade this one"
        )
    for migration in known:
        if migration.number in applied and applied[migration.number] != migration.sha256:
            raise SetupError(
                f"migration {migration.number:04}_{migration.name} differs from the one applied to this database; "
                "install the version of kubechronicle it was made with"
            )
    return [migration for migration in known if migration.number not in applied]


async def migrate_session(session: Session) -> list[str]:
    """Apply the missing migrations; return their names. SetupError, with the message of Postgres, if one fails."""
    await check_version(session)
    await session.fetch("select pg_advisory_lock($1)", ADVISORY_LOCK)
    try:
        await session.execute(_BOOTSTRAP)
        applied = {row["number"]: row["sha256"] for row in await session.fetch(_APPLIED)}
        todo = pending(migrations(), applied)
        for migration in todo:
            await _apply(session, migration)
    finally:
        if not session.closed:
            await session.fetch("select pg_advisory_unlock($1)", ADVISORY_LOCK)
    return [f"{migration.number:04}_{migration.name}" for migration in todo]


async def _apply(session: Session, migration: Migration) -> None:
    record = (
        "insert into kubechronicle.migrations (number, name, sha256) values "
        f"({migration.number}, '{migration.name}', '{migration.sha256}')"
    )
    try:
        await session.execute(f"begin; set local statement_timeout = 0;\n{migration.script}\n;{record}; commit")
    except LogError as error:
        if not session.closed:
            await session.execute("rollback")
        raise SetupError(f"migration {migration.number:04}_{migration.name} failed: {error}") from error


async def check_version(session: Session) -> None:
    """SetupError: Postgres is too old, or the encoding of the database is not UTF-8."""
    version = int((await session.fetch("select current_setting('server_version_num')::int"))[0][0])
    if version < OLDEST_POSTGRES * 10000:
        raise SetupError(
            f"Postgres {version // 10000} is too old: kubechronicle needs {OLDEST_POSTGRES} or newer; "
            "upgrade the database"
        )
    encoding = (await session.fetch("select current_setting('server_encoding')"))[0][0]
    if encoding != "UTF8":
        raise SetupError(f"the database has the encoding {encoding}; create it with encoding 'UTF8'")


async def check_schema(session: Session) -> None:
    """SetupError: this version cannot work with the database."""
    await check_version(session)
    known = (await session.fetch("select to_regclass('kubechronicle.migrations') is not null"))[0][0]
    applied = {row["number"]: row["sha256"] for row in await session.fetch(_APPLIED)} if known else {}
    if todo := pending(migrations(), applied):
        raise SetupError(
            f"the database lacks {len(todo)} migration(s), beginning with {todo[0].number:04}_{todo[0].name}; "
            "run `kubechronicle migrate`"
        )
