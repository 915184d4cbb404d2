"""The commands that work on the log without serving it: migrate, verify, compact. Each answers an exit code."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta

from kubechronicle.eventlog.errors import Compacted, FutureRevision
from kubechronicle.eventlog.postgres import migrate, open_postgres_log, open_session
from kubechronicle.eventlog.verify import verify
from kubechronicle.ops.database import maintenance_database
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings import Settings

INSTANCE = "maintenance"


async def run_migrate(settings: Settings) -> int:
    """Bring the schema up to date and tell what was done."""
    async with maintenance_database(settings) as url:
        applied = await migrate(url)
    for name in applied:
        print(f"applied {name}")
    print(f"the schema is up to date ({len(applied)} applied now)")
    return 0


async def run_verify(settings: Settings, *, anchors: dict[int, bytes]) -> int:
    """Recompute the hash chain. Exit code 1 if history was edited."""
    async with maintenance_database(settings) as url, open_session(url, application="kubechronicle verify") as session:
        verdict = await verify(session, anchors=anchors)
    if verdict.problem is not None:
        print(f"revision {verdict.problem.revision}: {verdict.problem.what}", file=sys.stderr)
        return 1
    print(
        f"verified revisions 1 to {verdict.revision}: {verdict.rows} by content, {verdict.tombstones} by digest; "
        f"anchor {verdict.revision}:{verdict.hash.hex()}"
    )
    return 0


async def run_compact(settings: Settings, *, revision: int | None, keep: float | None) -> int:
    """Forget history below a revision, or what is older than ``keep`` seconds. OperatorError."""
    async with maintenance_database(settings) as url, open_postgres_log(url, instance=INSTANCE) as log:
        if revision is None:
            assert keep is not None
            revision = await log.first_revision_since(datetime.now(UTC) - timedelta(seconds=keep)) - 1
            if revision <= (await log.head()).compacted:
                print("there is no history that old")
                return 0
        try:
            head = await log.compact(revision)
        except FutureRevision as error:
            raise OperatorError(f"--revision: the newest revision is {error.current}") from None
        except Compacted as error:
            raise OperatorError(f"--revision: history is compacted up to {error.compacted} already") from None
    print(f"compacted up to revision {head.compacted}; the newest revision is {head.revision}")
    return 0


def parse_anchors(texts: list[str]) -> dict[int, bytes]:
    """``REVISION:HASH`` as verify prints it. OperatorError."""
    anchors = {}
    for text in texts:
        match = re.fullmatch(r"(\d+):([0-9a-f]{64})", text.strip().lower())
        if match is None:
            raise OperatorError(f"--anchor: must be REVISION:HASH as `kubechronicle verify` prints it, got {text!r}")
        anchors[int(match[1])] = bytes.fromhex(match[2])
    return anchors
