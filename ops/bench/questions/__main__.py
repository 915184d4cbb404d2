"""``python -m kubechronicle.ops.bench.questions``: the cost of questions about the whole history of a long log.

    python -m kubechronicle.ops.bench.questions --data-dir D           keeps the log in D for the next run
    python -m kubechronicle.ops.bench.questions --only can-i           the questions that begin with "can-i"

The log is that of ops/bench/history.py, with the end of ops/bench/questions/log.py. Each request of a question is for
another moment or object, as far as there are several, so that no answer was kept. A question whose median is longer
than its aim is marked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import trio

from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.ops.bench import history
from kubechronicle.ops.bench.history import CHANGES, HISTORY, Client, Facts, cpu_ms
from kubechronicle.ops.bench.questions import log as questions_log
from kubechronicle.ops.bench.questions.log import COUNTED, GIVEN, NAMESPACE, TAKEN
from kubechronicle.ops.development.server_process import ServerProcess, resident_mib, running
from kubechronicle.ops.postgres.embedded_postgres import embedded_postgres

HEAD: Final = "| question | CPU: server + Postgres | first | median | longest | aim |\n|---|---|---|---|---|---|"
MOMENTS: Final = 100
"""Different moments that requests of one question are for, before one is repeated."""


@dataclass(frozen=True, slots=True)
class Log:
    """``bindings``: the revision of the first change of a binding."""

    facts: Facts
    bindings: int

    def amid_bindings(self, number: int) -> int:
        """Return a moment between the turning points, 500 changes from each."""
        return self.bindings + (GIVEN + TAKEN) // 2 + number % MOMENTS - MOMENTS // 2

    def ten_minutes(self, number: int) -> str:
        """Return the selector of ten minutes."""
        share = 0.3 + 0.6 * (number % MOMENTS) / MOMENTS
        since = self.facts.begins + (self.facts.ends - self.facts.begins) * share
        return f"time.from={since.isoformat()},time.to={(since + timedelta(minutes=10)).isoformat()}"


@dataclass(frozen=True, slots=True)
class Question:
    """One kind of request.

    ``aim``: the longest median in milliseconds, 0 for none
    ``path``: returns the request of a round
    ``check``: tells if an answer, or the last line of a stream, is as expected
    ``rounds``: at most so many
    """

    title: str
    aim: float
    path: Callable[[Log, int], str]
    check: Callable[[Any], bool]
    rounds: int = MOMENTS


def _rights(revision: int, **query: str) -> str:
    asked = urlencode({"summary": "rights", "resource": "pods", **query})
    return f"/history/at/{revision}{HISTORY}/namespaces/{NAMESPACE}/revisions?{asked}"


def _bisect(expression: str, selector: str = "", *, where: str = "revisions", **query: str) -> str:
    asked = {"summary": "bisect", "watch": "1", "expression": expression, "fieldSelector": selector, **query}
    return f"{HISTORY}/{where}?{urlencode(asked)}"


def _counted() -> str:
    selector = f"object.resource={COUNTED.resource},object.name={COUNTED.name}"
    return _bisect("self.data.half == 'first'", selector, where=f"namespaces/{NAMESPACE}/revisions")


def _searched(more_than: int) -> Callable[[Any], bool]:
    return lambda answer: answer["type"] == "RESULT" and answer["searched"] > more_than and answer["flips"] > 0


NODE: Final = "has(self.spec.nodeName) && self.spec.nodeName == 'node-7'"
REPLICAS: Final = "has(self.spec) && has(self.spec.replicas) && self.spec.replicas == 0"
PODS: Final = "object.resource=pods"
INCIDENT: Final = {"summary": "incident"}
QUESTIONS: Final = (
    Question(
        "can-i before these changes: no roles yet", 50,
        lambda log, n: _rights(500_000 + n, verb="delete", user="uma"), lambda found: found["allowed"] is False,
    ),
    Question(
        "can-i amid them, 500 to each turning point", 50,
        lambda log, n: _rights(log.amid_bindings(n), verb="delete", user="uma"),
        lambda found: found["allowed"] and "revision" in found["since"] and "revision" in found["until"],
    ),
    Question(
        "can-i by a group that half of the bindings name", 50,
        lambda log, n: _rights(log.amid_bindings(n), verb="get", user="una", userGroups='["developers"]'),
        lambda found: found["allowed"] and len(found["through"]) == 10,
    ),
    Question(
        "who can, there", 50,
        lambda log, n: _rights(log.amid_bindings(n), verb="delete"), lambda found: found["total"] > 10,
    ),
    Question(
        "incident of 10 minutes", 300,
        lambda log, n: f"{CHANGES}?{urlencode({**INCIDENT, 'fieldSelector': log.ten_minutes(n)})}",
        lambda found: found["kind"] == "RevisionIncident",
    ),
    Question("bisect of an object with 10,000 revisions", 1000, lambda log, _: _counted(), _searched(9_999), 5),
    Question("bisect of all pods", 30_000, lambda log, _: _bisect(NODE, PODS), _searched(400_000), 3),
    Question(
        "bisect of the whole cluster", 30_000,
        lambda log, _: _bisect(REPLICAS, include="clusterrevisions"), _searched(700_000), 3,
    ),
)  # fmt: skip


def measure(server: ServerProcess, client: Client, question: Question, log: Log, rounds: int) -> str:
    """Measure one question and return its row."""
    before, times = cpu_ms(server), []
    rounds = min(rounds, question.rounds)
    for number in range(rounds):
        path = question.path(log, number)
        took, body = client.timed(path)
        times.append(took)
        if not question.check(json.loads(body.splitlines()[-1])):
            raise SystemExit(f"{path}: unexpected response: {body[-500:]!r}")
    cpu = [(after - earlier) / rounds for earlier, after in zip(before, cpu_ms(server), strict=True)]
    median = statistics.median(times)
    missed = " **missed**" if question.aim and median > question.aim else ""
    shown = " | ".join(f"{each:,.1f} ms" for each in (times[0], median, max(times)))
    return f"| {question.title} | {cpu[0]:,.1f} + {cpu[1]:,.1f} ms | {shown}{missed} | {question.aim:,.0f} ms |"


async def prepare(data_dir: Path, revisions: int, objects: int) -> Log:
    """Fill the log unless it is filled already."""
    options = argparse.Namespace(revisions=revisions, objects=objects, days=30.0)
    facts = await history.prepare(data_dir, options)
    async with embedded_postgres(data_dir) as url, open_session(url) as session:
        return Log(facts, await questions_log.extend(session))


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kubechronicle.ops.bench.questions", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--data-dir", type=Path, help="the data directory of the log (default: temporary)")
    parser.add_argument("--revisions", type=int, default=1_000_000)
    parser.add_argument("--objects", type=int, default=100_000, help="objects that the revisions change")
    parser.add_argument("--rounds", type=int, default=30, help="requests of each question, at most (default 30)")
    parser.add_argument("--only", default="", metavar="BEGINNING", help="only questions whose titles begin like this")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    with history.directory(options) as data_dir:
        log = trio.run(prepare, data_dir, options.revisions, options.objects)
        # Without control loops, and without the removal of the old Events in the log, which would cost as much.
        arguments = ["--controllers", "", "--event-ttl", "100000h"]
        with running(ServerProcess(data_dir, arguments=arguments)) as server:
            client = Client(server)
            client.timed("/api/v1/namespaces")
            print(HEAD)
            for question in QUESTIONS:
                if question.title.startswith(options.only):
                    print(measure(server, client, question, log, options.rounds), flush=True)
            memory = max(resident_mib(each.pid, field="VmHWM") for each in server.processes())
            print(f"\nThe server's memory was at most {memory:,.0f} MiB.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
