"""What history costs writes, or a part of it: Postgres' CPU time per change on logs with it and without, in turn."""

from __future__ import annotations

import re
import statistics
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import orjson

from kubechronicle.eventlog.postgres import rows, sql
from kubechronicle.eventlog.postgres.connection import migrate, open_session
from kubechronicle.eventlog.postgres.session import Session
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.ops.bench import history_log
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres

BATCH = 16  # changes at once, as of so many clients
BATCHES = 1000  # of each operation on each log
BODY = orjson.dumps(
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"text": "some text " * 60}}
)
SOMEBODY = Who(
    user="system:serviceaccount:ci:deployer",
    groups=("system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"),
    extra={"authentication.kubernetes.io/credential-id": ("JTI=1f0a3f2e-6c2e-4d8e-9f57-3d1f0f1b2a66",)},
    verb="create",
    request_uri="/api/v1/namespaces/bench/configmaps?fieldManager=kubectl-create&fieldValidation=Strict",
    user_agent="kubectl/v1.36.2 (linux/amd64) kubernetes/8a1b2c3",
    source_address="10.0.0.17",
    field_manager="kubectl-create",
    audit_id="5d6f9a3e-4e0c-4a43-8a43-0c8c8d2b9c11",
)
NOBODY = Who(user="")


@dataclass(frozen=True, slots=True)
class Variant:
    """A log: ``without`` are patterns for the indexes it lacks, ``chained`` False has no digests and no hash chain."""

    title: str
    who: Who
    without: str = "$."  # matches nothing
    chained: bool = True


_DELETIONS = "create_revision"
# Who keeps no history but what watches need needs what belongs to a revision by its number, and an object's by its key.
_OF_HISTORY = r"\((namespace|user_name|resource), revision\)|WHERE"
INDEX = (Variant("without", SOMEBODY, without=_DELETIONS), Variant("with the index", SOMEBODY))
HISTORY = (
    Variant("revisions alone", NOBODY, without=_OF_HISTORY, chained=False),
    Variant("and who", SOMEBODY, without=_OF_HISTORY, chained=False),
    Variant("and the hash chain", SOMEBODY, without=_OF_HISTORY),
    Variant("and its indexes: all", SOMEBODY),
)
_INDEXES = """
select indexname, indexdef from pg_indexes where schemaname = 'kubechronicle' and tablename = 'log' and indexdef ~ $1
"""
_SIZE = (
    "select sum(pg_total_relation_size(oid))::bigint from pg_class"
    " where relkind = 'r' and relname ~ '^log_(long|short)_[0-9]+$'"
)
# Of append(): what makes the digest of a row, and the hash of it.
_DIGEST, _CHAIN = r"sha256\(record_send\(row\(.*?\)\)\) as digest", r"kubechronicle\.chain\(.*?\) over \(.*?\)"


def cpu_seconds(pid: int) -> float:
    """That a process has used so far (/proc/PID/schedstat: nanoseconds, not ticks)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def report(data_dir: Path, revisions: int, objects: int, variants: Sequence[Variant]) -> str:
    """On logs with so many revisions of so many objects, made if the directory has none: a table."""
    async with embedded_postgres(data_dir) as url, AsyncExitStack() as stack:
        sessions = []
        for number, variant in enumerate(variants):
            where = url.replace("?", f"_{number}_of_{len(variants)}?", 1)
            await _made(url, where, revisions, objects, variant)
            sessions.append(await stack.enter_async_context(open_session(where)))
        before = [(await session.fetch(_SIZE))[0][0] for session in sessions]
        found = await _measured(sessions, variants)
        appended = len(Operation) * BATCHES * BATCH
        sizes = [
            ((await session.fetch(_SIZE))[0][0] - was) / appended for session, was in zip(sessions, before, strict=True)
        ]
    lines = [
        f"| change | {' | '.join(each.title for each in variants)} | difference |",
        "|---" * (len(variants) + 2) + "|",
    ]
    for operation in Operation:
        taken = [statistics.median(found[operation, number]) for number in range(len(variants))]
        difference = f"{taken[-1] - taken[0]:+.1f} µs ({(taken[-1] / taken[0] - 1) * 100:+.1f} %)"
        lines.append(f"| {operation.name.lower()} | {' | '.join(f'{each:.1f} µs' for each in taken)} | {difference} |")
    told = " | ".join(f"{each:,.0f}" for each in sizes)
    lines.append(f"| bytes a revision | {told} | {sizes[-1] - sizes[0]:+,.0f} |")
    return "\n".join(lines)


async def _made(server: str, url: str, revisions: int, objects: int, variant: Variant) -> None:
    """A database of its own with a log, without what the variant goes without."""
    name = url.partition("?")[0].rpartition("/")[2]
    async with open_session(server) as session:
        if await session.fetch("select from pg_database where datname = $1", name):
            return
        await session.execute(f"create database {name}")
    await migrate(url)
    async with open_session(url) as session:
        if not variant.chained:
            append = (await session.fetch(history_log.DEFINITION))[0][0]
            for pattern, instead in ((_DIGEST, "''::bytea as digest"), (_CHAIN, "''::bytea")):
                append, times = re.subn(pattern, instead, append, flags=re.DOTALL)
                assert times == 1, f"append() has changed: {pattern}"
            await session.execute(append)
        for index in await session.fetch(_INDEXES, variant.without):
            await session.execute(f"drop index kubechronicle.{index['indexname']}")
        await history_log.fill(session, revisions=revisions, objects=objects, days=30)


async def _measured(
    sessions: Sequence[Session], variants: Sequence[Variant]
) -> dict[tuple[Operation, int], list[float]]:
    """µs of CPU time of a change, of each batch, by the operation and the number of the variant. Batch by batch in
    turn, so that what else the machine does is shared alike; none is always the first."""
    found: dict[tuple[Operation, int], list[float]] = {}
    revisions: dict[tuple[str, int], int] = {}
    prefix = uuid.uuid4().hex[:8]
    for operation in Operation:
        for batch in range(BATCHES):
            names = [f"{prefix}-{batch:04}-{index:02}" for index in range(BATCH)]
            for place in range(len(variants)):
                number = (place + batch) % len(variants)
                session, who = sessions[number], variants[number].who
                expected = [revisions.get((name, number), 0) for name in names]
                before = cpu_seconds(session.backend_pid)
                answer = await _append(session, who, operation, names, expected)
                taken = (cpu_seconds(session.backend_pid) - before) / BATCH * 1e6
                found.setdefault((operation, number), []).append(taken)
                revisions.update({(name, number): revision for name, revision in zip(names, answer, strict=True)})
    return found


async def _append(
    session: Session, who: Who, operation: Operation, names: Sequence[str], expected: Sequence[int]
) -> Sequence[int]:
    changes = [
        Change(key=Key("configmaps", "bench", name), uid=name, expected=revision, operation=operation, body=BODY)
        for name, revision in zip(names, expected, strict=True)
    ]
    transactions = tuple(Transaction(changes=(change,), who=who) for change in changes)
    batch = Batch(id=uuid.uuid4(), transactions=transactions)
    answer = (await session.fetch(sql.APPEND, *rows.batch_arguments(batch)))[0]
    taken: Sequence[int] = answer["revisions"]
    return taken
