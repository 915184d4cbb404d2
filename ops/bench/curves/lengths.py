"""The curve along the length of the log: the cost of requests for the present, and for history."""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import trio

from kubechronicle.eventlog.integrity.verify import verify
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.ops.bench import history, history_log
from kubechronicle.ops.bench.curves import points
from kubechronicle.ops.bench.curves.bench import Bench, at_rest, create, get, point_of
from kubechronicle.ops.bench.curves.points import Point
from kubechronicle.ops.bench.own_server import Measured, Running
from kubechronicle.ops.bench.usage import between
from kubechronicle.ops.development.server_process import cpu_seconds, descendants, postmaster
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres

LOG_OBJECTS = 5_000  # in a log of any length
LOG_DAYS = 0.5  # so that retention removes nothing during the measurement
LOG_BYTES = 4_000  # of disk per revision: half for tables and indexes, some for the write-ahead log
VERIFIED_PER_SECOND = 25_000  # revisions
WINDOW = 5_000  # revisions between the two times of a request


def log(bench: Bench, positions: Sequence[int]) -> Iterator[Point]:
    for x in bench.within("log", positions, lambda x: _cost(bench, x)):
        filled = bench.filled("log", x)
        free = shutil.disk_usage(bench.directory or tempfile.gettempdir()).free
        if filled is None and free < x * LOG_BYTES:
            bench.skipped.append(f"log at {x:,}: needs {x * LOG_BYTES / 2**30:,.0f} GiB of disk")
            continue
        options = argparse.Namespace(revisions=x, objects=min(LOG_OBJECTS, x // 2), days=LOG_DAYS)
        with ExitStack() as stack:
            workspace = stack.enter_context(bench.workspace(filled))
            facts = trio.run(history.prepare, workspace.data_dir, options)
            requests = HistoryRequests(facts, x)
            with workspace.serving() as running:
                yield at_rest(running, "log", x)
                yield get(bench, running, "log", x, points.GET, 16)
                yield create(bench, running, "log", x, points.CREATE, 16)
                for work, path in requests.all().items():
                    yield measure_requests(bench, running, x, work, path)
            if _to_verify(bench, x):
                yield trio.run(measure_verify, workspace.data_dir, x, facts)


def _cost(bench: Bench, x: int) -> float:
    """Estimate the seconds of filling and verifying."""
    verifying = x / VERIFIED_PER_SECOND if _to_verify(bench, x) else 0
    return 15 + verifying + (0 if bench.filled("log", x) else x / 7000) + 8 * bench.seconds


def _to_verify(bench: Bench, x: int) -> bool:
    return bench.verify_to is None or x <= bench.verify_to


class HistoryRequests:
    """Random requests for history. The size of the responses does not depend on the length of the log.

    ``length``: revisions of the filled log; servers have added some since
    """

    def __init__(self, facts: history.Facts, length: int) -> None:
        self._facts, self._length = facts, length
        # At this revision all objects exist: a log begins with the server's own objects.
        self._first = (facts.slots + length) // 2
        self._nodes = max(1, facts.slots * history_log.KINDS[0].share // 1000)

    def all(self) -> dict[str, Callable[[random.Random], str]]:
        return {
            points.PAST: self.past,
            points.PAST_LIST: self.past_list,
            points.PAST_PAGE: self.past_page,
            points.TIMELINE: self.timeline,
            points.DELETED: self.deleted,
            points.BETWEEN: self.between,
        }

    def _moment(self, choice: random.Random) -> int:
        return choice.randint(self._first, self._length)

    def _node(self, choice: random.Random) -> str:
        """Draw a Node. Nodes are the first slots."""
        return f"node-{choice.randrange(self._nodes):06}"

    def past(self, choice: random.Random) -> str:
        return f"/history/at/{self._moment(choice)}/api/v1/nodes/{self._node(choice)}"

    def past_list(self, choice: random.Random) -> str:
        return f"/history/at/{self._moment(choice)}/apis/apps/v1/deployments"

    def past_page(self, choice: random.Random) -> str:
        return f"/history/at/{self._moment(choice)}/api/v1/pods?limit=100"

    def timeline(self, choice: random.Random) -> str:
        selector = quote(f"object.kind=Node,object.name={self._node(choice)}")
        return f"{history.HISTORY}/clusterrevisions?content=diff&limit=20&fieldSelector={selector}"

    def deleted(self, choice: random.Random) -> str:
        return history.deleted(self._facts, choice)

    def between(self, choice: random.Random) -> str:
        """Draw two times, WINDOW revisions apart: the filled part was committed at an even rate."""
        step = (self._facts.ends - self._facts.begins) / self._length
        half = self._length // 2
        begins = self._facts.begins + step * choice.randrange(half, max(half + 1, self._length - WINDOW))
        selector = f"time.from={begins.isoformat()},time.to={(begins + step * WINDOW).isoformat()}"
        return f"{history.CHANGES}?limit=500&fieldSelector={quote(selector)}"


def measure_requests(bench: Bench, running: Running, x: int, work: str, path: Callable[[random.Random], str]) -> Point:
    """Send random requests one after another over one connection."""
    client, choice, times = history.Client(running.server), random.Random(f"{x} {work}"), list[float]()
    client.timed(path(choice))
    running.sampler()
    end = time.monotonic() + bench.seconds
    while time.monotonic() < end:
        times.append(client.timed(path(choice))[0])
    running.sampler()
    before, after = running.sampler.samples[-2:]
    usage = between(before, after)
    seen = {
        "operations": len(times),
        "per_second": len(times) / usage.seconds,
        "ms": {"p50": statistics.median(times), "p99": sorted(times)[len(times) * 99 // 100]},
        "errors": 0,
    }
    return point_of(Measured(usage=usage, memory=after.memory, seen=seen), "log", x, work)


async def measure_verify(data_dir: Path, x: int, facts: history.Facts) -> Point:
    """Verify the whole chain, as `kubechronicle verify` does, and add the disk use per revision."""
    async with embedded_postgres(data_dir) as url, open_session(url) as session:
        database = postmaster(data_dir / "postgres")
        assert database is not None

        def totals() -> tuple[float, float, float]:
            own = resource.getrusage(resource.RUSAGE_SELF)
            return time.monotonic(), own.ru_utime + own.ru_stime, cpu_seconds(descendants(database))

        before = totals()
        verdict = await verify(session)
        wall, own, postgres = (after - earlier for after, earlier in zip(totals(), before, strict=True))
    return Point(
        curve="log",
        x=x,
        work=points.VERIFY,
        cpu_us=(own / verdict.revision * 1e6, postgres / verdict.revision * 1e6),
        rate=verdict.revision / wall,
        stored=(facts.row_bytes / facts.revisions, facts.index_bytes / facts.revisions),
        errors=0 if verdict.problem is None else 1,
        problem="" if verdict.problem is None else str(verdict.problem),
    )
