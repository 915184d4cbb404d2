"""``python -m kubechronicle.ops.bench.history``: the cost of reading history on a long log, and of its indexes.

    python -m kubechronicle.ops.bench.history                                fills a log of 1,000,000 revisions first
    python -m kubechronicle.ops.bench.history --data-dir D                   keeps it in D for the next run
    python -m kubechronicle.ops.bench.history --revisions 300000 --only commands

Each case sends HTTPS requests to a server on that log, each for a moment that no earlier request has, unless the title
says otherwise. A case slower than its limit is marked. The commands of ``kubectl chronicle`` follow
(history_commands.py). ``--index-cost`` and ``--history-cost`` measure writes instead: Postgres' CPU time per change, in
turn on logs with and without the index of deletions, or everything that only history needs. Use smaller logs for them.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import quote

import trio

from kubechronicle.eventlog.postgres.connection import migrate, open_session
from kubechronicle.ops.bench import history_commands, history_cost, history_log
from kubechronicle.ops.development.server_process import ServerProcess, cpu_seconds, descendants, running
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres

HEAD = "| request | CPU: server + Postgres | first | median | p99 | limit | response |\n|---|---|---|---|---|---|---|"
COMMAND_ROUNDS = 9  # at most: each starts a process
_FACTS = """
select h.revision, (select count(*) from kubechronicle.live),
    (select committed_at from kubechronicle.log order by revision limit 1),
    -- the last revision of the fill: servers have appended others since
    coalesce((select committed_at from kubechronicle.log where revision = $1), h.committed_at),
    (select sum(pg_table_size(oid)) from pg_class where relname ~ '^log_(long|short)_[0-9]+$')::bigint,
    (select sum(pg_indexes_size(oid)) from pg_class where relname ~ '^log_(long|short)_[0-9]+$')::bigint
from kubechronicle.head h
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """Measures of the log. ``slots``: objects that the revisions change in turn (history_log.py)."""

    revisions: int
    objects: int
    begins: datetime
    ends: datetime
    row_bytes: int
    index_bytes: int
    slots: int


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request.

    ``limit``: the largest median in milliseconds, 0 for none
    ``path``: returns a random request
    ``check``: returns whether the response is as expected
    """

    title: str
    limit: float
    path: Callable[[Facts, random.Random], str]
    check: Callable[[object], bool] = lambda document: True
    table: bool = False


def _revision(facts: Facts, choice: random.Random) -> int:
    """Draw a revision at which every slot has been visited at least once."""
    return choice.randint(facts.slots, facts.revisions)


def _at(path: str, facts: Facts, choice: random.Random) -> str:
    return f"/history/at/{_revision(facts, choice)}{path.format(namespace=f'team-{choice.randrange(500):03}')}"


def _object(facts: Facts, choice: random.Random) -> str:
    """Draw a Node. Nodes are the first slots."""
    return f"/api/v1/nodes/node-{choice.randrange(facts.slots * history_log.KINDS[0].share // 1000):06}"


def _at_a_time(facts: Facts, choice: random.Random) -> str:
    share = _revision(facts, choice) / facts.revisions
    moment = facts.begins + (facts.ends - facts.begins) * share
    return f"/history/at/{quote(moment.isoformat())}{_object(facts, choice)}"


def _items(count: int) -> Callable[[object], bool]:
    return lambda document: (
        isinstance(document, dict) and len(document.get("items") or document.get("rows") or ()) == count
    )


HISTORY = "/apis/history.kubechronicle.dev/v1"
CHANGES = f"{HISTORY}/revisions"
DEPLOYMENTS = "/apis/apps/v1/deployments"
CASES = (
    Case("get an object at a revision", 5, lambda facts, choice: _at(_object(facts, choice), facts, choice)),
    Case("get an object at a time", 5, _at_a_time),
    Case("list 1,000 nodes", 100, partial(_at, "/api/v1/nodes"), _items(1000)),
    Case("list 1,000 deployments", 100, partial(_at, DEPLOYMENTS), _items(1000)),
    Case("list 1,000 deployments as a table", 0, partial(_at, DEPLOYMENTS), _items(1000), table=True),
    Case("list a namespace's pods (100)", 100, partial(_at, "/api/v1/namespaces/{namespace}/pods")),
    Case("first page of 500 of all pods", 0, partial(_at, "/api/v1/pods?limit=500"), _items(500)),
    Case("list 1,000 deployments, again", 0, lambda facts, _: f"/history/at/{facts.slots + 1}{DEPLOYMENTS}"),
    Case("a watch's replay of a day of deployments", 0, lambda facts, choice: _day(facts, choice)),
    Case("an object's timeline, with differences", 20, lambda facts, choice: _timeline(facts, choice)),
    Case("who deleted a pod", 50, lambda facts, choice: deleted(facts, choice)),
    Case("the last 50 changes of a user", 0, lambda facts, choice: _user(facts, choice)),
    Case("all changes of an hour", 1000, lambda facts, choice: _hour(facts, choice)),
)


def _timeline(facts: Facts, choice: random.Random) -> str:
    name = _object(facts, choice).rpartition("/")[2]
    selector = f"object.kind=Node,object.name={name}"
    return f"{HISTORY}/clusterrevisions?content=diff&limit=500&fieldSelector={quote(selector)}"


def deleted(facts: Facts, choice: random.Random) -> str:
    namespace = f"team-{choice.randrange(500):03}"
    return f"{HISTORY}/namespaces/{namespace}/revisions?limit=1&fieldSelector=object.kind%3DPod,operation%3DDelete"


def _user(facts: Facts, choice: random.Random) -> str:
    return f"{CHANGES}?limit=50&fieldSelector=who.username%3Duser-{choice.randrange(17)}"


def _hour(facts: Facts, choice: random.Random) -> str:
    begins = facts.begins + (facts.ends - facts.begins) * choice.uniform(0.2, 0.9)
    selector = f"time.from={begins.isoformat()},time.to={(begins + timedelta(hours=1)).isoformat()}"
    return f"{CHANGES}?limit=5000&fieldSelector={quote(selector)}"


def _day(facts: Facts, choice: random.Random) -> str:
    days = max((facts.ends - facts.begins).total_seconds() / 86400, 1)
    first = choice.randint(facts.slots, max(facts.slots, int(facts.revisions * (1 - 1 / days))))
    last = min(first + int(facts.revisions / days), facts.revisions)
    return f"/history/at/{first}{DEPLOYMENTS}?watch=1&resourceVersion={first}&until={last}"


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.history", description="Measure history.")
    parser.add_argument("--data-dir", type=Path, help="the data directory of the log (default: temporary)")
    parser.add_argument("--revisions", type=int, default=1_000_000)
    parser.add_argument("--objects", type=int, default=100_000, help="objects that the revisions change")
    parser.add_argument("--days", type=float, default=30.0, help="the days over which they were committed")
    parser.add_argument("--rounds", type=int, default=50, help="requests of each case (default 50)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("requests", "commands"), help="only one of the two tables")
    parser.add_argument("--index-cost", action="store_true", help="measure the index of deletions' cost for writes")
    parser.add_argument("--history-cost", action="store_true", help="measure the cost of history for writes")
    return parser.parse_args(argv)


async def prepare(data_dir: Path, options: argparse.Namespace) -> Facts:
    """Fill the log unless it is filled already, and return its measures."""
    async with embedded_postgres(data_dir) as url:
        await migrate(url)
        async with open_session(url) as session:
            if not (await session.fetch("select revision from kubechronicle.head"))[0][0]:
                await history_log.fill(session, revisions=options.revisions, objects=options.objects, days=options.days)
                await session.execute("vacuum analyze kubechronicle.log")  # as autovacuum does later
            await session.execute("set statement_timeout = 0")
            row = (await session.fetch(_FACTS, options.revisions))[0]
    revisions, objects, begins, ends, row_bytes, index_bytes = row
    return Facts(revisions, objects, begins, ends, row_bytes, index_bytes, slots=options.objects)


class Client:
    """One connection with the rights of an administrator."""

    def __init__(self, server: ServerProcess) -> None:
        pki = server.data_dir / "pki"
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        host, _, port = server.url.removeprefix("https://").rpartition(":")
        self._connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=60)

    def timed(self, path: str, *, table: bool = False) -> tuple[float, bytes]:
        """Return the milliseconds of a request, and the body of the response."""
        kind = "application/json;as=Table;v=v1;g=meta.k8s.io" if table else "application/json"
        began = time.perf_counter()
        self._connection.request("GET", path, headers={"Accept": kind})
        response = self._connection.getresponse()
        body = response.read()
        took = (time.perf_counter() - began) * 1000
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {body[:300]!r}")
        return took, body


def cpu_ms(server: ServerProcess) -> tuple[float, float]:
    """Return the CPU milliseconds used so far by the server and by its Postgres."""
    postmaster = server.embedded_postgres()
    postgres = descendants(postmaster) if postmaster is not None else []
    return cpu_seconds(server.processes()) * 1000, cpu_seconds(postgres) * 1000


def measure(server: ServerProcess, client: Client, case: Case, facts: Facts, options: argparse.Namespace) -> str:
    """Measure one case and return its row."""
    before = cpu_ms(server)
    choice = random.Random(f"{options.seed} {case.title}")
    times, size = [], 0
    for _ in range(options.rounds):
        path = case.path(facts, choice)
        took, body = client.timed(path, table=case.table)
        times.append(took)
        size = max(size, len(body))
        if "watch=1" not in path and not case.check(json.loads(body)):
            raise SystemExit(f"{path}: unexpected response: {body[:200]!r}")
    cpu = [(after - earlier) / options.rounds for earlier, after in zip(before, cpu_ms(server), strict=True)]
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    median = statistics.median(times)
    limit = f"{case.limit:.0f} ms" if case.limit else ""
    missed = " **missed**" if case.limit and median > case.limit else ""
    times_text = f"{cpu[0]:.1f} + {cpu[1]:.1f} ms | {times[0]:.1f} ms | {median:.1f} ms{missed} | {p99:.1f} ms"
    return f"| {case.title} | {times_text} | {limit} | {size / 1024:,.0f} KiB |"


@contextlib.contextmanager
def directory(options: argparse.Namespace) -> Iterator[Path]:
    if options.data_dir is not None:
        yield options.data_dir.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="kubechronicle-history-") as home:
        Path(home).chmod(0o755)  # the embedded Postgres may run as another user
        yield Path(home) / "data"


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    with directory(options) as data_dir:
        if options.index_cost or options.history_cost:
            variants = history_cost.INDEX if options.index_cost else history_cost.HISTORY
            print(trio.run(history_cost.report, data_dir, options.revisions, options.objects, variants))
            return 0
        facts = trio.run(prepare, data_dir, options)
        size = (facts.row_bytes + facts.index_bytes) / facts.revisions
        print(
            f"A log of {facts.revisions:,} revisions, {facts.objects:,} objects at its end, "
            f"{size:,.0f} bytes per revision ({facts.index_bytes / facts.revisions:,.0f} of them indexes).\n"
        )
        with running(ServerProcess(data_dir, arguments=["--controllers", ""])) as server:
            print(f"The server was ready after {server.ready_after:.1f} s.\n")
            if options.only != "commands":
                print(HEAD)
                client = Client(server)
                client.timed("/api/v1/namespaces")
                for case in CASES:
                    print(measure(server, client, case, facts, options), flush=True)
            if options.only != "requests":
                print(f"\n{history_commands.HEAD}")
                log = history_commands.Log(facts.begins, facts.ends, facts.slots)
                for row in history_commands.rows(server, log, min(options.rounds, COMMAND_ROUNDS)):
                    print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
