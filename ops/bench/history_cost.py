"""What the index of deletions costs writes: Postgres' CPU time per change, with it and without, in turn."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Sequence
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
BATCHES = 250  # in a turn, of each operation
TURNS = 8
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
    """On a log with so many revisions of so many objects, made if the directory has none. A table."""
    async with embedded_postgres(data_dir) as url:
        await migrate(url)
        async with open_session(url) as session:
            if not (await session.fetch("select revision from kubechronicle.head"))[0][0]:
                await history_log.fill(session, revisions=revisions, objects=objects, days=30)
            ((_, definition),) = await session.fetch(_INDEX)
        found: dict[tuple[Operation, bool], list[float]] = {}
        for turn in range(TURNS * 2):
            indexed = turn % 4 in (0, 3)  # neither always goes first
            async with open_session(url) as session:
                await session.execute("set statement_timeout = 0")
                if indexed != bool(present := await session.fetch(_INDEX)):
                    drop = f"drop index kubechronicle.{present[0][0]}" if present else definition
                    await session.execute(drop)
            async with open_session(url) as session:  # a new one: plans of before do not matter
                for operation, cost in (await _turn(session, f"t{turn}")).items():
                    found.setdefault((operation, indexed), []).append(cost)
        async with open_session(url) as session:
            if not await session.fetch(_INDEX):
                await session.execute(f"set statement_timeout = 0; {definition}")
    lines = ["| change | without | with the index | difference |", "|---|---|---|---|"]
    for operation in Operation:
        without, having = (_least(found[operation, indexed]) for indexed in (False, True))
        difference = f"{having - without:+.1f} µs ({(having / without - 1) * 100:+.1f} %)"
        lines.append(f"| {operation.name.lower()} | {without:.1f} µs | {having:.1f} µs | {difference} |")
    return "\n".join(lines)


def _least(costs: Sequence[float]) -> float:
    """The median of the lower half: what others do on the machine only ever adds."""
    return statistics.median(sorted(costs)[: (len(costs) + 1) // 2])


async def _turn(session: Session, prefix: str) -> dict[Operation, float]:
    """Create, update and delete; µs of CPU time of each change."""
    revisions: dict[str, int] = {}
    found: dict[Operation, float] = {}
    for operation in Operation:
        before = cpu_seconds(session.backend_pid)
        for number in range(BATCHES):
            names = [f"{prefix}-{number:04}-{index:02}" for index in range(BATCH)]
            answer = await _append(session, operation, names, [revisions.get(name, 0) for name in names])
            revisions.update(zip(names, answer, strict=True))
        found[operation] = (cpu_seconds(session.backend_pid) - before) / (BATCHES * BATCH) * 1e6
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
