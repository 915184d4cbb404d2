"""`kubechronicle backup`, `restore-backup`, `bump-revisions` and `verify --backup`: the log as one file, and back
(docs/backup.md)."""

from __future__ import annotations

import argparse
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

import trio

from kubechronicle.eventlog.integrity import jumps
from kubechronicle.eventlog.integrity.jumps import Jump
from kubechronicle.eventlog.integrity.witnesses import RESOURCE, token_of
from kubechronicle.eventlog.layout import SPAN
from kubechronicle.eventlog.postgres import sql
from kubechronicle.eventlog.postgres.connection import migrate, open_session
from kubechronicle.eventlog.postgres.migrate import check_schema, migrations
from kubechronicle.eventlog.transfer.backup import write_backup
from kubechronicle.eventlog.transfer.backup_file import BackupError, KeptHistory, Reader, TableRow
from kubechronicle.eventlog.transfer.checking import BackupCheck
from kubechronicle.eventlog.transfer.ends import bump_revisions
from kubechronicle.eventlog.transfer.restoring import BadTarget, Damaged, restore, revision_at
from kubechronicle.eventlog.transfer.stored_rows import StoredRow
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.maintenance.checkpoints import add_anchors, read_checkpoints
from kubechronicle.ops.maintenance.databases import check_alone, tell_of_others
from kubechronicle.ops.maintenance.witness import Proof, WitnessFlags, proof_of
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres
from kubechronicle.ops.progress import ProgressLine
from kubechronicle.ops.settings.settings import Settings

BUMP: Final = 1_000_000_000
"""Revisions added by --bump-revisions: more than any cluster writes in the time between a backup and its restore."""
MOST_BUMP: Final = SPAN // 10
"""A log of several must not reach the revisions of the next one (eventlog/layout.py)."""
CHUNK: Final = 500


async def run_backup(settings: Settings, arguments: argparse.Namespace) -> int:
    """Write a backup of the database, beside running servers. Raise OperatorError."""
    path = Path(arguments.output)
    _check_output(path)
    async with maintenance_database(settings) as url, open_session(url, application="kubechronicle backup") as session:
        await check_schema(session)
        await tell_of_others(session)
        with ProgressLine("saving") as progress:
            try:
                header, size = await write_backup(session, path, progress=progress)
            except BackupError as error:
                raise OperatorError(f"--output: {error}") from None
    terminal.stdout().line(
        f"saved revision {header.revision} of {header.committed_at.isoformat()} to {path} ({size} bytes); "
        f"anchor {header.revision}:{header.hash.hex()}"
    )
    return 0


def _check_output(path: Path) -> None:
    if path.exists():
        raise OperatorError(f"--output: {path} exists already; name a new file")
    if not path.parent.is_dir():
        raise OperatorError(f"--output: there is no directory {path.parent}")


async def run_restore(settings: Settings, arguments: argparse.Namespace) -> int:
    """Restore a backup into an empty database. Raise OperatorError. Exit code 1: the backup is damaged."""
    path, bump = Path(arguments.file), _bump(arguments.bump_revisions)
    revision, moment = _target(arguments)
    try:
        if moment is not None:
            revision = await trio.to_thread.run_sync(_revision_at, path, moment)
        reader = await trio.to_thread.run_sync(Reader, path)
        wanted = reader.header.revision if revision is None else revision
        async with _empty_database(settings) as url:
            await migrate(url)
            async with open_session(url, application="kubechronicle restore") as session:
                with ProgressLine("restoring") as progress:
                    done = await restore(
                        session, reader, revision=wanted, migration=len(migrations()), progress=progress
                    )
                jump = await bump_revisions(session, bump) if bump else None
                await tell_of_others(session)
    except BadTarget as error:
        raise OperatorError(str(error)) from None
    except (Damaged, BackupError) as error:
        terminal.stderr().line(f"{path}: {error}; nothing was restored")
        return 1
    out = terminal.stdout()
    out.line(
        f"restored revision {done.revision} of {done.committed_at.isoformat()}: {done.objects} objects, "
        f"{done.rows} changes; anchor {done.revision}:{done.hash.hex()}"
    )
    if done.partial:
        out.line(f"of these resources, only objects that did not change later are there: {', '.join(done.partial)}")
    if jump is not None:
        out.line(_describe(jump))
    elif done.revision < reader.header.revision:
        out.line("clients may know later revisions than that: restart them all, or restore with --bump-revisions")
    return 0


async def run_bump(settings: Settings, arguments: argparse.Namespace) -> int:
    """Bump the revisions of a log that was restored by other means. Raise OperatorError."""
    by = _bump(arguments.by) or BUMP
    async with maintenance_database(settings) as url:
        await check_alone(url, "bump-revisions")
        async with open_session(url, application="kubechronicle bump-revisions") as session:
            await check_schema(session)
            if not (await session.fetch(sql.HEAD))[0]["head"]:
                raise OperatorError("the log is empty: nobody knows a revision of it")
            jump = await bump_revisions(session, by)
            await tell_of_others(session)
    terminal.stdout().line(_describe(jump))
    return 0


def _describe(jump: Jump) -> str:
    return f"the next revision is {jump.last + 1}; watches from a lost revision are answered with 410 Expired"


async def run_verify(
    settings: Settings,
    path: Path,
    *,
    anchors: dict[int, bytes],
    checkpoints: Sequence[str],
    key_file: Path | None,
    witness: WitnessFlags,
) -> int:
    """Prove a backup without a database. Return exit code 1 if it is damaged or was edited."""
    signed, problem = read_checkpoints(settings, checkpoints, key_file)
    try:
        proof = await trio.to_thread.run_sync(_proof, path, witness) if witness.certificates else Proof()
        noted = [*signed, *proof.checkpoints]
        if problem := problem or proof.problem or add_anchors(anchors, noted):
            terminal.stderr().line(problem)
            return 1
        return await trio.to_thread.run_sync(_verify, path, anchors, {each.log_id for each in noted}, proof)
    except BackupError as error:
        terminal.stderr().line(str(error))
        return 1


def _proof(path: Path, flags: WitnessFlags) -> Proof:
    """Return what the tokens in a backup prove. BackupError, OperatorError."""
    reader = Reader(path)
    try:
        rows = (item.row if isinstance(item, KeptHistory) else item for item in reader.items())
        stored = (row for row in rows if isinstance(row, StoredRow) and row["resource"] == RESOURCE)
        bodies = {row["revision"]: row["object"] for row in stored if row["object"] is not None}
        return proof_of([token_of(revision, body) for revision, body in sorted(bodies.items())], flags)
    except ValueError as error:
        return Proof(problem=f"{path}: {error}")
    finally:
        reader.close()


def _verify(path: Path, anchors: dict[int, bytes], log_ids: set[UUID], proof: Proof) -> int:
    reader = Reader(path)
    if others := log_ids - {reader.header.log_id}:
        terminal.stderr().line(f"{path} is a backup of log {reader.header.log_id}, not of log {min(others)}")
        return 1
    check = BackupCheck(reader.header, anchors)
    beside = 0
    with ProgressLine("verifying") as progress:
        for item in reader.items():
            beside += isinstance(item, TableRow)
            problem = check.add(item)
            progress(check.chain.revision, reader.header.revision)
            if problem:
                break
        else:
            problem = check.finish()
    if problem:
        terminal.stderr().line(f"{path}: revision {problem.revision}: {problem.message}")
        return 1
    chain, out = check.chain, terminal.stdout()
    out.line(
        f"verified revisions 1 to {chain.revision} of {path}: {chain.rows} by content, {chain.tombstones} by digest; "
        f"anchor {chain.revision}:{chain.hash.hex()}"
    )
    for line in (*jumps.summaries(chain.jumps), *proof.summary(chain.revision)):
        out.line(line)
    return 0


@asynccontextmanager
async def _empty_database(settings: Settings) -> AsyncIterator[str]:
    """Yield the URL of the database to restore into; an embedded one is made if there is none."""
    if settings.database_url is not None:
        async with maintenance_database(settings) as url:
            yield url
        return
    async with embedded_postgres(Path(settings.data_dir)) as url:
        yield url


def _revision_at(path: Path, moment: datetime) -> int:
    reader = Reader(path)
    try:
        return revision_at(reader, moment)
    finally:
        reader.close()


def _target(arguments: argparse.Namespace) -> tuple[int | None, datetime | None]:
    """Return the revision or the time of the flags. Raise OperatorError."""
    if text := arguments.to_revision:
        if not re.fullmatch(r"[0-9]{1,18}", text) or not int(text):
            raise OperatorError(f"--to-revision: must be a revision, got {text!r}")
        return int(text), None
    if text := arguments.to_time:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise OperatorError(f"--to-time: must be a time such as 2026-03-02T14:12:00Z, got {text!r}") from None
        return None, moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return None, None


def _bump(text: str | None) -> int:
    if text is None:
        return 0
    if not re.fullmatch(r"[0-9]{1,18}", text) or not 0 < int(text) <= MOST_BUMP:
        raise OperatorError(f"--bump-revisions: must be a number of revisions up to {MOST_BUMP}, got {text!r}")
    return int(text)
