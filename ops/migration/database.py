"""The database that an import writes, the report of its result, and its comparison with the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubechronicle.eventlog.errors import Compacted, LogError
from kubechronicle.eventlog.integrity import jumps
from kubechronicle.eventlog.integrity.jumps import Jump
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.transfer.founding import Founder
from kubechronicle.ops import terminal
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.migration.compare import Expected, differences, differing_changes
from kubechronicle.ops.migration.report import MigrationReport
from kubechronicle.ops.server.encryption.encryption import Encryption

SHOWN: Final = 50
"""Differences that --verify prints."""


@dataclass(frozen=True, slots=True)
class DatabasePlace:
    """The database to import into, and the encryption of its contents."""

    url: str
    encryption: Encryption


def finish(report: MigrationReport, founder: Founder, seconds: float, compacted: int, report_file: str) -> int:
    """Print the result of an import; return the exit code."""
    out, errors = terminal.stdout(), terminal.stderr()
    report.print(out, errors)
    out.line(
        f"imported {founder.objects} objects as of revision {compacted} and {founder.changes} later changes "
        f"in {seconds:.1f} s; the newest revision is {founder.revision}; anchor {founder.revision}:{founder.hash.hex()}"
    )
    if report_file:
        Path(report_file).write_text(report.lines())
    return 1 if report.problems else 0


async def verify(
    place: DatabasePlace, expected: Expected, *, resources: set[str], after: int, until: int, source: str
) -> int:
    """Compare the log with a source, and print the differences. Return exit code 1 if there are any."""
    async with open_postgres_log(place.url, instance="import") as stored:
        log = place.encryption.over(stored)
        try:
            found = await differences(log, expected, revision=until, resources=resources)
            found += await differing_changes(log, expected, after=after, until=until, resources=resources)
        except Compacted as error:
            raise OperatorError(f"the log has dropped history since the import from {source}: {error}") from None
    return _report(found, len(expected.objects), len(expected.changes), until)


def _report(found: Sequence[str], objects: int, changes: int, revision: int) -> int:
    out, errors = terminal.stdout(), terminal.stderr()
    for line in found[:SHOWN]:
        errors.line(line)
    if len(found) > SHOWN:
        errors.line(f"and {len(found) - SHOWN} more differences")
    if found:
        return 1
    out.line(f"no difference: {objects} objects at revision {revision}, {changes} changes of the history")
    return 0


async def founding_of(session: PostgresSession) -> Jump | None:
    """Return the jump of the import that founded the log, if one did."""
    rows = await session.fetch("select first, last, about from kubechronicle.jumps where first = 1")
    if not rows:
        return None
    try:
        return jumps.parse(*rows[0])
    except ValueError as error:
        raise LogError(str(error)) from None
