"""The cost of history for writes: Postgres' CPU time per change, in turn on logs with and without parts of it."""

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
from kubechronicle.eventlog.postgres.session import PostgresSession
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.ops.bench import history_log
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres

BATCH = 16  # changes per batch, as of 16 clients
BATCHES = 1000  # per operation and log
BODY = orjson.dumps(
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"text": "some text " * 60}}
)
KNOWN_AUTHOR = Who(
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
NO_AUTHOR = Who(user="")


@dataclass(frozen=True, slots=True)
class Variant:
    """A log.

    ``who``: the author of its changes
    ``without``: a pattern for the definitions of the indexes it lacks
    ``chained``: whether it has digests and a hash chain
    """

    title: str
    who: Who
    without: str = "$."  # matches nothing
    chained: bool = True


_DELETIONS = "create_revision"
# Indexes that only history needs. Watches need those by revision and by object.
_OF_HISTORY = r"\((namespace|user_name|resource), revision\)|WHERE"
INDEX = (Variant("without", KNOWN_AUTHOR, without=_DELETIONS), Variant("with the index", KNOWN_AUTHOR))
HISTORY = (
    Variant("revisions alone", NO_AUTHOR, without=_OF_HISTORY, chained=False),
    Variant("and who", KNOWN_AUTHOR, without=_OF_HISTORY, chained=False),
    Variant("and the hash chain", KNOWN_AUTHOR, without=_OF_HISTORY),
    Variant("and its indexes: all", KNOWN_AUTHOR),
)
_INDEXES = """
select indexname, indexdef from pg_indexes where schemaname = 'kubechronicle' and tablename = 'log' and indexdef ~ $1
"""
_SIZE = (
    "select sum(pg_total_relation_size(oid))::bigint from pg_class"
    " where relkind = 'r' and relname ~ '^log_(long|short)_[0-9]+$'"
)
# The expressions in append() for the digest of a row, and for the hash chain.
_DIGEST = r"case when reason = '' then sha256\(record_send\(row\(.*? end as digest"
_CHAIN = r"kubechronicle\.chain\(.*?\) over \(.*?\)"


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process (/proc/PID/schedstat: in nanoseconds, not in ticks)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def report(data_dir: Path, revisions: int, objects: int, variants: Sequence[Variant]) -> str:
    """Measure appends to logs of that size, filled if the directory has none, and return a table."""
    async with embedded_postgres(data_dir) as url, AsyncExitStack() as stack:
        sessions = []
        for number, variant in enumerate(variants):
            where = url.replace("?", f"_{number}_of_{len(variants)}?", 1)
            await _fill_database(url, where, revisions, objects, variant)
            sessions.append(await stack.enter_async_context(open_session(where)))
        before = [(await session.fetch(_SIZE))[0][0] for session in sessions]
        times = await _measure(sessions, variants)
        appended = len(Operation) * BATCHES * BATCH
        sizes = [
            ((await session.fetch(_SIZE))[0][0] - size) / appended
            for session, size in zip(sessions, before, strict=True)
        ]
    lines = [
        f"| change | {' | '.join(each.title for each in variants)} | difference |",
        "|---" * (len(variants) + 2) + "|",
    ]
    for operation in Operation:
        medians = [statistics.median(times[operation, number]) for number in range(len(variants))]
        difference = f"{medians[-1] - medians[0]:+.1f} µs ({(medians[-1] / medians[0] - 1) * 100:+.1f} %)"
        lines.append(
            f"| {operation.name.lower()} | {' | '.join(f'{each:.1f} µs' for each in medians)} | {difference} |"
        )
    row = " | ".join(f"{each:,.0f}" for each in sizes)
    lines.append(f"| bytes per revision | {row} | {sizes[-1] - sizes[0]:+,.0f} |")
    return "\n".join(lines)


async def _fill_database(server: str, url: str, revisions: int, objects: int, variant: Variant) -> None:
    """Create a database with the variant's log, unless it exists."""
    name = url.partition("?")[0].rpartition("/")[2]
    async with open_session(server) as session:
        if await session.fetch("select from pg_database where datname = $1", name):
            return
        await session.execute(f"create database {name}")
    await migrate(url)
    async with open_session(url) as session:
        if not variant.chained:
            append = (await session.fetch(history_log.DEFINITION))[0][0]
            for pattern, replacement in ((_DIGEST, "''::bytea as digest"), (_CHAIN, "''::bytea")):
                append, count = re.subn(pattern, replacement, append, flags=re.DOTALL)
                assert count == 1, f"append() has changed: {pattern}"
            await session.execute(append)
        for index in await session.fetch(_INDEXES, variant.without):
            await session.execute(f"drop index kubechronicle.{index['indexname']}")
        await history_log.fill(session, revisions=revisions, objects=objects, days=30)


async def _measure(
    sessions: Sequence[PostgresSession], variants: Sequence[Variant]
) -> dict[tuple[Operation, int], list[float]]:
    """Return the CPU microseconds per change of each batch, by operation and number of the variant.

    The variants take turns batch by batch, with a changing first one, so that noise affects all alike.
    """
    times: dict[tuple[Operation, int], list[float]] = {}
    revisions: dict[tuple[str, int], int] = {}
    prefix = uuid.uuid4().hex[:8]
    for operation in Operation:
        for batch in range(BATCHES):
            names = [f"{prefix}-{batch:04}-{index:02}" for index in range(BATCH)]
            for turn in range(len(variants)):
                number = (turn + batch) % len(variants)
                session, who = sessions[number], variants[number].who
                expected = [revisions.get((name, number), 0) for name in names]
                before = cpu_seconds(session.backend_pid)
                appended = await _append(session, who, operation, names, expected)
                taken = (cpu_seconds(session.backend_pid) - before) / BATCH * 1e6
                times.setdefault((operation, number), []).append(taken)
                revisions.update({(name, number): revision for name, revision in zip(names, appended, strict=True)})
    return times


async def _append(
    session: PostgresSession, who: Who, operation: Operation, names: Sequence[str], expected: Sequence[int]
) -> Sequence[int]:
    changes = [
        Change(key=Key("configmaps", "bench", name), uid=name, expected=revision, operation=operation, body=BODY)
        for name, revision in zip(names, expected, strict=True)
    ]
    transactions = tuple(Transaction(changes=(change,), who=who) for change in changes)
    batch = Batch(id=uuid.uuid4(), transactions=transactions)
    row = (await session.fetch(sql.APPEND, *rows.batch_arguments(batch)))[0]
    revisions: Sequence[int] = row["revisions"]
    return revisions
