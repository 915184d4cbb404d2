"""``python -m kubechronicle.ops.bench.idle``: CPU and memory of an idle server, and memory after many changes.

    make bench-idle                     50 informers of 30 watches for 60 s, an hour within 16 minutes, then 6 rounds

First, programs with informers list and watch, with one connection each, as client-go does. Nothing changes. The server
must use less than 1 % of a core.

Then --hours of an idle cluster of 100 nodes pass within --minutes. Leases of nodes and of elections are renewed,
statuses are reported, and a few pods with their Events come and go. Informers' watches last 5 to 10 of the hour's
minutes and are restarted; one in four lists again. The memory must level off.

Last, in rounds, 10,000 objects are created and deleted. Other informers receive the events, and end with the round. The
memory after each round must level off, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubechronicle.ops.bench import own_server, report
from kubechronicle.ops.bench.own_server import Running, load_generator
from kubechronicle.ops.bench.usage import between
from kubechronicle.ops.development.server_process import resident_mib

MAX_IDLE = 0.01  # of a core
CHURN_INFORMERS, CHURN_WATCHES = 5, 3
MAX_GROWTH = 0.05  # of memory in the later half of the rounds, as a share
PODS_PER_NODE, POD_LIFE = 3, 7200.0  # of the idle cluster
WATCH_SECONDS = 300.0  # client-go's watches last this long, up to twice


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The first part.

    ``share``: the used share of a core, for server and Postgres
    ``before``, ``after``: resident MiB of the server
    ``ended``: watches that ended early
    """

    watches: int
    seconds: float
    share: dict[str, float]
    before: float
    after: float
    ended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of created and deleted objects.

    ``memory``: resident MiB of the server after some rest
    ``postgres``: MiB of Postgres
    """

    number: int
    rate: float
    cpu_us: dict[str, float]
    memory: float
    postgres: float
    errors: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """The hours of an idle cluster.

    ``memory``: MiB of server and Postgres at the start, after each minute, and at the end
    ``seen``: the result of the load generator
    """

    hours: float
    nodes: int
    seconds: float
    memory: Sequence[tuple[float, float]]
    cpu: dict[str, float]
    seen: Mapping[str, Any]

    @property
    def growth(self) -> float:
        """Growth of the server in MiB per hour of the cluster, over the last third."""
        last = [server for server, _ in self.memory[len(self.memory) * 2 // 3 :]]
        if len(last) < 2:
            return 0.0
        return statistics.linear_regression(range(len(last)), last).slope * (len(self.memory) - 1) / self.hours

    @property
    def later(self) -> Sequence[float]:
        """The server's memory in the later half, when its window of recent changes and its caches are full."""
        return [server for server, _ in self.memory[len(self.memory) // 2 :]]


def idle(running: Running, options: argparse.Namespace) -> Idle:
    before = resident_mib(running.server.pid)
    measured = running.run_load(
        mode="informers",
        namespace="bench-idle",
        informers=options.informers,
        watches=options.watches,
        seconds=options.seconds,
        warm=options.warm,
        http1=options.http1,
    )
    return Idle(
        watches=measured.seen["watches"],
        seconds=measured.usage.seconds,
        share={group: measured.usage.cores(group) for group in ("server", "postgres")},
        before=before,
        after=resident_mib(running.server.pid),
        ended=measured.seen["errors"],
    )


def hours(running: Running, options: argparse.Namespace) -> Hours:
    """Run the hours of an idle cluster. LoadError."""
    compress = options.hours * 60 / options.minutes
    measured = running.run_load(
        mode="hour",
        namespace="bench-hour",
        nodes=options.nodes,
        compress=compress,
        informers=options.informers,
        watches=options.watches,
        seconds=options.minutes * 60,
        warm=options.warm,
        http1=options.http1,
        **{"pods-per-node": PODS_PER_NODE, "pod-life": POD_LIFE, "watch-seconds": WATCH_SECONDS / compress},
    )
    usage = between(running.sampler.samples[0], running.sampler.samples[-1])
    return Hours(
        hours=options.hours,
        nodes=options.nodes,
        seconds=usage.seconds,
        memory=[(sample.memory["server"], sample.memory["postgres"]) for sample in running.sampler.samples],
        cpu={group: usage.cpu[group] for group in ("server", "postgres")},
        seen=measured.seen,
    )


def rounds(running: Running, options: argparse.Namespace) -> Iterator[Round]:
    for number in range(1, options.rounds + 1):
        measured = running.run_load(
            mode="churn",
            namespace="bench-churn",
            informers=CHURN_INFORMERS,
            watches=CHURN_WATCHES,
            count=options.objects,
            conns=16,
            size=1024,
            http1=options.http1,
        )
        after = running.memory()
        yield Round(
            number=number,
            rate=measured.seen["per_second"],
            cpu_us=measured.cpu_us(),
            memory=resident_mib(running.server.pid),
            postgres=after["postgres"],
            errors=measured.seen["errors"],
            problem=measured.seen["problem"],
        )


def levels(memory: Sequence[float]) -> bool:
    """Return whether the later half stays within MAX_GROWTH of the earlier half's maximum."""
    half = len(memory) // 2
    return half == 0 or max(memory[half:]) <= max(memory[:half]) * (1 + MAX_GROWTH)


def idle_lines(result: Idle) -> str:
    share = result.share["server"]
    verdict = "" if share < MAX_IDLE else f" **(expected: below {MAX_IDLE:.0%})**"
    ended = f" **{result.ended} watches ended early.**" if result.ended else ""
    return (
        f"{result.watches:,} idle watches over {result.seconds:.0f} s: server {share:.2%} of a core"
        f"{verdict}, Postgres {result.share['postgres']:.2%}; server {result.before:.0f} MiB before the watches, "
        f"{result.after:.0f} MiB after.{ended}"
    )


def hours_lines(result: Hours) -> str:
    seen, server = result.seen, [server for server, _ in result.memory]
    share = {group: used / (result.hours * 3600) for group, used in result.cpu.items()}
    requests = ", ".join(f"{each['operations']:,} × {kind}" for kind, each in sorted(seen["kinds"].items()))
    lines = [
        f"{result.hours:g} h of an idle cluster of {result.nodes} nodes in {result.seconds / 60:.0f} min:",
        f"{requests}; {seen['turned']:,} restarts of {seen['watches']:,} watches, {seen['listed']:,} lists after them,",
        f"{seen['events']:,} watch events. In the cluster's time that is {share['server']:.1%} of a core for the",
        f"server and {share['postgres']:.1%} for Postgres. MiB of the server at the start and after each minute:",
        f"{', '.join(f'{mib:.1f}' for mib in server)}: {_verdict(result.later)}, in the last third by",
        f"{result.growth:+.1f} MiB per hour of the cluster. MiB of Postgres: "
        f"{result.memory[0][1]:.0f}, at the end {result.memory[-1][1]:.0f}.",
    ]
    if seen["errors"]:
        lines.append(f"**{seen['errors']} errors: {seen['problem'][:300]}**")
    return "\n".join(lines)


def _verdict(memory: Sequence[float]) -> str:
    return "levels off" if levels(memory) else "**keeps growing**"


def table(rounds: Sequence[Round], objects: int) -> str:
    lines = [
        f"| {objects:,} created and deleted | per second | CPU/op: server + Postgres | server MiB | Postgres MiB |",
        "|---|---|---|---|---|",
    ]
    for each in rounds:
        cpu = " + ".join(f"{each.cpu_us[group]:.0f} µs" for group in ("server", "postgres"))
        failed = f" **{each.errors} errors: {each.problem[:200]}**" if each.errors else ""
        lines.append(f"| {each.number} | {each.rate:,.0f} | {cpu} | {each.memory:.0f} | {each.postgres:.0f} |{failed}")
    memory = [each.memory for each in rounds]
    if memory:
        lines += [
            "",
            f"The server's memory {_verdict(memory)}: {memory[0]:.0f} MiB after one round, {memory[-1]:.0f} at last.",
        ]
    return "\n".join(lines)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.idle", description="Measure idleness.")
    parser.add_argument("--informers", type=int, default=50, help="programs with informers (default 50)")
    parser.add_argument("--watches", type=int, default=30, help="resources that each of them watches (default 30)")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the idle part (default 60)")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds before that (default 3)")
    parser.add_argument("--hours", type=float, default=1.0, help="hours of an idle cluster (default 1)")
    parser.add_argument("--minutes", type=float, default=16.0, help="minutes they take; 0: skip them (default 16)")
    parser.add_argument("--nodes", type=int, default=100, help="of that cluster (default 100)")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of created and deleted objects (default 6)")
    parser.add_argument("--objects", type=int, default=10_000, help="objects of each round (default 10000)")
    parser.add_argument("--http1", action="store_true", help="informers use HTTP/1.1, a connection for each watch")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures, one JSON document per line")
    parser.add_argument("--directory", type=Path, help="parent of the data directory (default: /tmp)")
    parser.add_argument("--load-binary", type=Path, help="the load generator (default: built into .cache/bin)")
    return parser.parse_args(argv)


def documents(idle_part: Idle, hours_part: Hours | None, churn: Sequence[Round]) -> list[dict[str, Any]]:
    middle = [] if hours_part is None else [{"hours": dataclasses.asdict(hours_part)}]
    return [
        {"idle": dataclasses.asdict(idle_part)},
        *middle,
        *({"round": dataclasses.asdict(each)} for each in churn),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    options = parse_arguments(argv)
    with (
        own_server.workspace(load_generator(options.load_binary), directory=options.directory) as workspace,
        workspace.serving() as running,
    ):
        running.memory()  # waits for the server to rest
        idle_part = idle(running, options)
        hours_part = hours(running, options) if options.minutes else None
        churn = list(rounds(running, options))
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench.idle", *argv])
    print(report.preamble(command, note="Load from other processes on the same machine."))
    print(
        "",
        idle_lines(idle_part),
        "",
        *([hours_lines(hours_part), ""] if hours_part else []),
        table(churn, options.objects),
        sep="\n",
    )
    if options.json:
        with options.json.open("a") as lines:
            lines.writelines(json.dumps(document) + "\n" for document in documents(idle_part, hours_part, churn))
    successful = idle_part.share["server"] < MAX_IDLE and not idle_part.ended and not any(each.errors for each in churn)
    if hours_part:
        successful = successful and levels(hours_part.later) and not hours_part.seen["errors"]
    return 0 if successful and levels([each.memory for each in churn]) else 1


if __name__ == "__main__":
    sys.exit(main())
