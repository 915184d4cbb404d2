"""What the index of deletions costs writes: Postgres' CPU time per change, with it and without, in turn."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from kubechronicle.eventlog import postgres_rows as rows
from kubechronicle.eventlog import postgres_sql as sql
from kubechronicle.eventlog.postgres import migrate, open_session
from kubechronicle.eventlog.postgres_session import Session
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.ops.bench import history_log
from kubechronicle.ops.embedded_postgres import embedded_postgres

BATCH = 16  # changes at once, as of so many clients
BATCHES = 1000  # of each operation on each log
_INDEX = """
select indexname, indexdef from pg_indexes where schemaname = 'kubechronicle' and tablename = 'log'
    and indexdef like '%create_revision%'
"""
BODY = orjson.dumps(
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"text": "some text " * 60}}
)
SOMEBODY = Who(user="bench", groups=("system:authenticated",), verb="create", request_uri="/api/v1/x", user_agent="b")


def cpu_seconds(pid: int) -> float:
    """That a process has used so far (/proc/PID/schedstat: nanoseconds, not ticks)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def report(data_dir: Path, revisions: int, objects: int) -> str:
    """On two logs with so many revisions of so many objects, made if the directory has none: a table."""
    async with embedded_postgres(data_dir) as url:
        urls = {indexed: url.replace("?", f"_{'with' if indexed else 'without'}?", 1) for indexed in (True, False)}
        for indexed, where in urls.items():
            await _made(url, where, revisions, objects, indexed=indexed)
        async with open_session(urls[True]) as having, open_session(urls[False]) as without:
            found = await _measured({True: having, False: without})
    lines = ["| change | without | with the index | difference |", "|---|---|---|---|"]
    for operation in Operation:
        less, more = (statistics.median(found[operation, indexed]) for indexed in (False, True))
        difference = f"{more - less:+.1f} µs ({(more / less - 1) * 100:+.1f} %)"
        lines.append(f"| {operation.name.lower()} | {less:.1f} µs | {more:.1f} µs | {difference} |")
    return "\n".join(lines)


async def _made(server: str, url: str, revisions: int, objects: int, *, indexed: bool) -> None:
    """A database of its own with a log, with the index or without."""
    name = url.partition("?")[0].rpartition("/")[2]
    async with open_session(server) as session:
        if await session.fetch("select from pg_database where datname = $1", name):
            return
        await session.execute(f"create database {name}")
    await migrate(url)
    async with open_session(url) as session:
        await history_log.fill(session, revisions=revisions, objects=objects, days=30)
        if not indexed:
            await session.execute(f"drop index kubechronicle.{(await session.fetch(_INDEX))[0][0]}")


async def _measured(sessions: Mapping[bool, Session]) -> dict[tuple[Operation, bool], list[float]]:
    """µs of CPU time of a change, of each batch, by the operation and whether there is the index. Batch by batch in
    turn, so that what else the machine does is shared alike; neither is always the first."""
    found: dict[tuple[Operation, bool], list[float]] = {}
    revisions: dict[tuple[str, bool], int] = {}
    prefix = uuid.uuid4().hex[:8]
    for operation in Operation:
        for number in range(BATCHES):
            names = [f"{prefix}-{number:04}-{index:02}" for index in range(BATCH)]
            for indexed in (True, False) if number % 2 else (False, True):
                session = sessions[indexed]
                expected = [revisions.get((name, indexed), 0) for name in names]
                before = cpu_seconds(session.backend_pid)
                answer = await _append(session, operation, names, expected)
                taken = (cpu_seconds(session.backend_pid) - before) / BATCH * 1e6
                found.setdefault((operation, indexed), []).append(taken)
                revisions.update({(name, indexed): revision for name, revision in zip(names, answer, strict=True)})
    return found


async def _append(
    session: Session, operation: Operation, names: Sequence[str], expected: Sequence[int]
) -> Sequence[int]:
    changes = [
        Change(key=Key("configmaps", "bench", name), uid=name, expected=revision, operation=operation, body=BODY)
        for name, revision in zip(names, expected, strict=True)
    ]
    transactions = tuple(Transaction(changes=(change,), who=SOMEBODY) for change in changes)
    batch = Batch(id=uuid.uuid4(), transactions=transactions)
    answer = (await session.fetch(sql.APPEND, *rows.batch_arguments(batch)))[0]
    taken: Sequence[int] = answer["revisions"]
    return taken
