"""The commands on the log: migrate, verify, compact. Each returns an exit code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

import trio

from kubechronicle.eventlog.encryption.contents import EncryptedContents
from kubechronicle.eventlog.errors import Compacted, FutureRevision, NotArchived, TransformError
from kubechronicle.eventlog.integrity import drops, jumps, marks
from kubechronicle.eventlog.integrity.checkpoints import Checkpoint
from kubechronicle.eventlog.integrity.definitions import differences
from kubechronicle.eventlog.integrity.verify import LogVerdict, verify
from kubechronicle.eventlog.postgres.connection import migrate, open_session
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.retention import archives
from kubechronicle.eventlog.retention.retention import require_archives
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.maintenance.checkpoints import add_anchors, read_checkpoints
from kubechronicle.ops.maintenance.databases import tell_of_others
from kubechronicle.ops.maintenance.witness import Proof, WitnessFlags, proof_of_log
from kubechronicle.ops.postgres.database import maintenance_database
from kubechronicle.ops.progress import ProgressLine
from kubechronicle.ops.server.encryption.chains import EncryptionPlan, encryption_plan
from kubechronicle.ops.server.encryption.encryption import Encryption
from kubechronicle.ops.settings import types
from kubechronicle.ops.settings.conversion import converter
from kubechronicle.ops.settings.settings import Settings

# -- contents check ----------------------------------------------------------------------------------------------------
#
# Encrypted contents, checked with their keys: `kubechronicle verify --encryption-provider-config FILE`.
#
# The hash chain proves that ciphertext is what was appended, without any key. This check proves that it is readable:
# each encrypted row is decrypted, and with authenticating ciphers belongs to its object. Nothing of the contents is
# printed.

CHUNK: Final = 500
# Reads the whole table: no index tells which rows are encrypted.
_ROWS: Final = """
select revision, resource, namespace, name, object from kubechronicle.{}
where kubechronicle.is_encrypted(object) order by revision
"""


@dataclass(slots=True)
class ContentsVerdict:
    """``readable``, ``unreadable``: the number of encrypted rows. ``first``: the first unreadable revision, 0: none."""

    readable: int = 0
    unreadable: int = 0
    first: int = 0
    reason: str = ""


async def check_contents(session: PostgresSession, plan: EncryptionPlan) -> ContentsVerdict:
    """Decrypt every encrypted row, those that were copied forward included. LogUnavailable."""
    verdict = ContentsVerdict()
    encryption = Encryption(plan)
    async with trio.open_nursery() as nursery:
        await nursery.start(encryption.run)
        for table in ("kept", "log"):
            await _check_table(session, table, encryption.contents, verdict)
        nursery.cancel_scope.cancel()
    return verdict


async def _check_table(
    session: PostgresSession, table: str, contents: EncryptedContents, verdict: ContentsVerdict
) -> None:
    async with session.snapshot():
        await session.execute("set local statement_timeout = 0")
        rows = session.rows(_ROWS.format(table), chunk=CHUNK, size=lambda row: len(row["object"]))
        async with aclosing(rows) as chunks:
            async for chunk in chunks:
                for row in chunk:
                    key = Key(row["resource"], row["namespace"], row["name"])
                    try:
                        await contents.decrypted(key, row["object"].encode())
                    except TransformError as error:
                        verdict.unreadable += 1
                        if not verdict.first or row["revision"] < verdict.first:
                            verdict.first, verdict.reason = row["revision"], str(error)
                    else:
                        verdict.readable += 1


# -- log commands ------------------------------------------------------------------------------------------------------

INSTANCE = "maintenance"
NO_WITNESS: Final = WitnessFlags()

T = TypeVar("T")


async def run_migrate(settings: Settings) -> int:
    """Bring the schema up to date and print the applied migrations."""
    async with maintenance_database(settings) as url:
        with ProgressLine("migrating", "migrations", interval=0) as progress:
            applied = await migrate(url, progress)
    for name in applied:
        terminal.stdout().line(f"applied {name}")
        async with open_session(url) as session:
            await tell_of_others(session)
    terminal.stdout().line(f"the schema is up to date ({len(applied)} applied now)")
    return 0


async def run_verify(
    settings: Settings,
    *,
    anchors: dict[int, bytes],
    checkpoints: Sequence[str] = (),
    key_file: Path | None = None,
    archive: Path | None = None,
    witness: WitnessFlags = NO_WITNESS,
) -> int:
    """Recompute the hash chain. Return exit code 1 if history, a checkpoint or an archive was edited.

    ``checkpoints``: files
    ``archive``: the directory of archives
    ``witness``: the certificates of outside witnesses, and more tokens of them

    With a configuration of encryption, also 1 if encrypted contents cannot be decrypted.
    """
    encryption = encryption_plan(settings)
    signed, problem = read_checkpoints(settings, checkpoints, key_file)
    if problem := problem or add_anchors(anchors, signed):
        terminal.stderr().line(problem)
        return 1
    async with maintenance_database(settings) as url, open_session(url, application="kubechronicle verify") as session:
        try:
            found = await _check_database(session, encryption, anchors, signed, archive, witness)
        except (archives.ArchiveError, _NoProof) as error:
            terminal.stderr().line(str(error))
            return 1
    return _report(found, signed, archives_read=archive is not None)


class _NoProof(Exception):
    """The tokens of witnesses contradict the log, or each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckedDatabase:
    """The results of all checks of a database.

    ``contents``: None without a configuration of encryption.
    ``different``: a line for each definition that is not this version's; ``uncompared``: why none was compared, or "".
    """

    verdict: LogVerdict
    proof: Proof
    contents: ContentsVerdict | None
    different: Sequence[str]
    uncompared: str


async def _check_database(
    session: PostgresSession,
    encryption: EncryptionPlan | None,
    anchors: dict[int, bytes],
    signed: Sequence[Checkpoint],
    archive: Path | None,
    witness: WitnessFlags,
) -> _CheckedDatabase:
    """Check the chain, the encrypted contents and the definitions. ArchiveError, _NoProof."""
    proof = await proof_of_log(session, witness)
    if problem := proof.problem or add_anchors(anchors, proof.checkpoints):
        raise _NoProof(problem)
    noted = [*signed, *proof.checkpoints]
    log_id = (await session.fetch("select log_id from kubechronicle.head"))[0][0]
    archived = archives.rows_of_all(archives.of_log(archive, log_id)) if archive is not None else ()
    with ProgressLine("verifying") as progress:
        verdict = await verify(
            session,
            anchors=anchors,
            log_ids={checkpoint.log_id for checkpoint in noted},
            archived=archived,
            checkpoints=noted,
            progress=progress,
        )
    contents = None if encryption is None else await check_contents(session, encryption)
    different, uncompared = await differences(session)
    await tell_of_others(session)
    return _CheckedDatabase(verdict=verdict, proof=proof, contents=contents, different=different, uncompared=uncompared)


def _report(found: _CheckedDatabase, signed: Sequence[Checkpoint], *, archives_read: bool) -> int:
    """Print the results; return the exit code."""
    out, errors, verdict = terminal.stdout(), terminal.stderr(), found.verdict
    for each in found.different:
        errors.line(each)
    if verdict.problem is not None:
        where = f"revision {verdict.problem.revision}: " if verdict.problem.revision else ""
        errors.line(f"{where}{verdict.problem.message}")
        return 1
    _print_verified(verdict, signed, archives_read=archives_read)
    out.lines("".join(f"{line}\n" for line in found.proof.summary(verdict.revision)))
    if found.uncompared:
        out.line(f"the definitions of the database were not compared: {found.uncompared}")
    elif not found.different:
        out.line("the definitions of the database are those of this version")
    if found.different:
        return 1
    contents = found.contents
    if contents is not None:
        out.line(f"decrypted {contents.readable} encrypted revisions")
        if contents.unreadable:
            problem = f"{contents.unreadable} encrypted revisions cannot be decrypted, the first: {contents.reason}"
            errors.line(f"revision {contents.first}: {problem}")
            return 1
    return 0


def _print_verified(verdict: LogVerdict, signed: Sequence[Checkpoint], *, archives_read: bool) -> None:
    """Print the verified revisions, the erasures among them, and the checkpoints that agree."""
    out = terminal.stdout()
    out.line(
        f"verified revisions 1 to {verdict.revision}: {verdict.rows} by content, "
        + (f"{verdict.archived} by content in archives, " if archives_read else "")
        + f"{verdict.tombstones - verdict.archived} by digest; anchor {verdict.revision}:{verdict.hash.hex()}"
    )
    for line in (*jumps.summaries(verdict.jumps), *drops.summaries(verdict.drops), *marks.summary(verdict.moves)):
        out.line(line)
    for erasure, revisions in verdict.erasures:
        assert erasure.erased_at is not None
        out.line(
            f"erased: {erasure.summary()} in {terminal.counted(erasure.count, 'revision')} ({revisions}), "
            f"recorded by revision {erasure.revision} at {erasure.erased_at.isoformat()}, by {erasure.by} "
            f"({erasure.os_user}, database role {erasure.role}): {erasure.reason}"
        )
    if verdict.unerased:
        out.line(
            f"{verdict.unerased} erased revisions are still in archives: repeat the erasure with --history-archive"
        )
    for checkpoint in signed:
        out.line(f"up to revision {checkpoint.revision} history is as it was at {checkpoint.noted_at.isoformat()}")


async def run_compact(
    settings: Settings,
    *,
    revision: int | None,
    keep: float | None,
    without_archive: bool = False,
    by: str = "",
    reason: str = "",
) -> int:
    """Forget history below a revision, or older than ``keep`` seconds. Raise OperatorError.

    ``by``, ``reason``: recorded with the move of the marks.

    ``without_archive``: from now on, history is dropped without archiving, until a server has a directory for it again.
    """
    if without_archive and settings.history_archive is not None:
        raise OperatorError("--without-archive: not together with --history-archive")
    async with maintenance_database(settings) as url, open_postgres_log(url, instance=INSTANCE) as log:
        async with open_session(url) as session:
            await tell_of_others(session)
            if without_archive:
                await require_archives(session, False)
        if revision is None:
            assert keep is not None
            revision = await log.first_revision_since(datetime.now(UTC) - timedelta(seconds=keep)) - 1
            if revision <= (await log.head()).compacted:
                terminal.stdout().line("there is no history that old")
                return 0
        try:
            head = await log.compact(revision, archive=settings.history_archive, actor=by, reason=reason)
        except archives.ArchiveError as error:
            raise OperatorError(f"--history-archive: {error}") from None
        except NotArchived:
            raise OperatorError(
                "--history-archive: a server archives history before it is dropped: "
                "give its directory here too, or --without-archive"
            ) from None
        except FutureRevision as error:
            raise OperatorError(f"--revision: the newest revision is {error.current}") from None
        except Compacted as error:
            raise OperatorError(f"--revision: history is compacted up to {error.compacted} already") from None
    terminal.stdout().line(f"compacted up to revision {head.compacted}; the newest revision is {head.revision}")
    return 0


def parse_anchors(texts: list[str]) -> dict[int, bytes]:
    """Parse anchors, ``REVISION:HASH`` as verify prints them. Raise OperatorError."""
    anchors = {}
    for text in texts:
        match = re.fullmatch(r"(\d+):([0-9a-f]{64})", text.strip().lower())
        if match is None:
            raise OperatorError(f"--anchor: must be REVISION:HASH as `kubechronicle verify` prints it, got {text!r}")
        anchors[int(match[1])] = bytes.fromhex(match[2])
    return anchors


def parse_revision(text: str | None) -> int | None:
    """Parse the value of --revision. Raise OperatorError."""
    return _parse("revision", text, types.Count) if text else None


def parse_seconds(flag: str, text: str | None) -> float | None:
    """Parse the value of a flag into seconds. Raise OperatorError."""
    return _parse(flag, text, types.Seconds) if text else None


def _parse(flag: str, text: str, kind: type[T]) -> T:
    try:
        return converter().structure(text, kind)
    except ValueError as error:
        raise OperatorError(f"--{flag}: {error}") from None
