"""``python -m kubechronicle.ops.bench.idle``: what a server does while nothing happens, and what much leaves behind.

    make bench-idle                     50 informers of 30 watches for 60 s, an hour within 16 minutes, then 6 rounds

First, programs with informers list and watch, over one connection each as client-go has it, and nothing changes: the
server's share of a core (below 1 % is wanted).

Then --hours of what goes on in a cluster of 100 nodes where nothing happens, within --minutes: Leases of nodes and of
elections are renewed, statuses reported, a few pods come and go with their Events, informers' watches last 5 to 10 of
the hour's minutes and are begun again, and of four so ended one lists anew. The memory at each minute has to level off.

Last, in rounds, 10,000 objects are created and deleted beside other informers, which hear of all of it and leave with
the round; the memory after each round has to level off, too.
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

BAR = 0.01  # of a core
CHURN_INFORMERS, CHURN_WATCHES = 5, 3
LEVEL = 0.05  # what the later half of the rounds may add to memory, as a share
PODS_PER_NODE, POD_LIFE = 3, 7200.0  # of the cluster where nothing happens
WATCH_SECONDS = 300.0  # client-go's watches last this long, or up to twice


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """``share``: of a core, for server and Postgres; ``before`` and ``after``: resident MiB of the server."""

    watches: int
    seconds: float
    share: dict[str, float]
    before: float
    after: float
    ended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """``memory``: resident MiB of the server when it had settled; ``postgres``: of Postgres."""

    number: int
    rate: float
    cpu_us: dict[str, float]
    memory: float
    postgres: float
    errors: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """``memory``: MiB of server and Postgres when it began, after each minute, and at the end. ``seen``: the load
    generator's own document."""

    hours: float
    nodes: int
    seconds: float
    memory: Sequence[tuple[float, float]]
    cpu: dict[str, float]
    seen: Mapping[str, Any]

    @property
    def growth(self) -> float:
        """MiB of the server per hour of the cluster, over the last third."""
        last = [server for server, _ in self.memory[len(self.memory) * 2 // 3 :]]
        if len(last) < 2:
            return 0.0
        return statistics.linear_regression(range(len(last)), last).slope * (len(self.memory) - 1) / self.hours

    @property
    def later(self) -> Sequence[float]:
        """The server's when what is kept of the last minutes (eventlog/views/window.py) and of encodings is there."""
        return [server for server, _ in self.memory[len(self.memory) // 2 :]]


def idle(running: Running, options: argparse.Namespace) -> Idle:
    before = resident_mib(running.server.pid)
    measured = running.put(
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
    """LoadError."""
    compress = options.hours * 60 / options.minutes
    measured = running.put(
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
    whole = between(running.sampler.samples[0], running.sampler.samples[-1])
    return Hours(
        hours=options.hours,
        nodes=options.nodes,
        seconds=whole.seconds,
        memory=[(one.memory["server"], one.memory["postgres"]) for one in running.sampler.samples],
        cpu={group: whole.cpu[group] for group in ("server", "postgres")},
        seen=measured.seen,
    )


def rounds(running: Running, options: argparse.Namespace) -> Iterator[Round]:
    for number in range(1, options.rounds + 1):
        measured = running.put(
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
    """Whether the later half of the rounds added next to nothing to what the earlier half had come to."""
    half = len(memory) // 2
    return half == 0 or max(memory[half:]) <= max(memory[:half]) * (1 + LEVEL)


def idle_lines(found: Idle) -> str:
    share = found.share["server"]
    verdict = "" if share < BAR else f" **(wanted: below {BAR:.0%})**"
    ended = f" **{found.ended} watches ended early.**" if found.ended else ""
    return (
        f"{found.watches:,} watches over {found.seconds:.0f} s in which nothing happened: server {share:.2%} of a core"
        f"{verdict}, Postgres {found.share['postgres']:.2%}; server {found.before:.0f} MiB before the watches, "
        f"{found.after:.0f} MiB after.{ended}"
    )


def hours_lines(found: Hours) -> str:
    seen, server = found.seen, [server for server, _ in found.memory]
    share = {group: used / (found.hours * 3600) for group, used in found.cpu.items()}
    done = ", ".join(f"{of['operations']:,} × {kind}" for kind, of in sorted(seen["kinds"].items()))
    lines = [
        f"{found.hours:g} h of a cluster of {found.nodes} nodes where nothing happens in {found.seconds / 60:.0f} min:",
        f"{done}; {seen['turned']:,} ends of {seen['watches']:,} watches, {seen['listed']:,} lists after them,",
        f"{seen['events']:,} events heard. In the cluster's time that is {share['server']:.1%} of a core for the",
        f"server and {share['postgres']:.1%} for Postgres. MiB of the server at the begin and after each minute:",
        f"{', '.join(f'{one:.1f}' for one in server)}: {_verdict(found.later)}, in its last third by",
        f"{found.growth:+.1f} MiB an hour of the cluster. Of Postgres: "
        f"{found.memory[0][1]:.0f}, at the end {found.memory[-1][1]:.0f}.",
    ]
    if seen["errors"]:
        lines.append(f"**{seen['errors']} errors: {seen['problem'][:300]}**")
    return "\n".join(lines)


def _verdict(memory: Sequence[float]) -> str:
    return "levels off" if levels(memory) else "**goes on growing**"


def table(found: Sequence[Round], objects: int) -> str:
    lines = [
        f"| {objects:,} created and deleted | a second | CPU/op: server + Postgres | server MiB | Postgres MiB |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        cpu = " + ".join(f"{one.cpu_us[group]:.0f} µs" for group in ("server", "postgres"))
        failed = f" **{one.errors} errors: {one.problem[:200]}**" if one.errors else ""
        lines.append(f"| {one.number} | {one.rate:,.0f} | {cpu} | {one.memory:.0f} | {one.postgres:.0f} |{failed}")
    memory = [one.memory for one in found]
    if memory:
        lines += [
            "",
            f"The server's memory {_verdict(memory)}: {memory[0]:.0f} MiB after one round, {memory[-1]:.0f} at last.",
        ]
    return "\n".join(lines)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.idle", description="Measure idleness.")
    parser.add_argument("--informers", type=int, default=50, help="programs with informers (default 50)")
    parser.add_argument("--watches", type=int, default=30, help="resources each of them watches (default 30)")
    parser.add_argument("--seconds", type=float, default=60.0, help="in which nothing happens (default 60)")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds before that (default 3)")
    parser.add_argument("--hours", type=float, default=1.0, help="of a cluster's life (default 1)")
    parser.add_argument("--minutes", type=float, default=16.0, help="within which they pass; 0: none do (default 16)")
    parser.add_argument("--nodes", type=int, default=100, help="of that cluster (default 100)")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of objects that come and go (default 6)")
    parser.add_argument("--objects", type=int, default=10_000, help="objects of each round (default 10000)")
    parser.add_argument("--http1", action="store_true", help="informers use HTTP/1.1, a connection for each watch")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures, a document on a line")
    parser.add_argument("--directory", type=Path, help="where the data directory is made (default: /tmp)")
    parser.add_argument("--load-binary", type=Path, help="the load generator (default: built into .cache/bin)")
    return parser.parse_args(given)


def documents(found: Idle, lived: Hours | None, churn: Sequence[Round]) -> list[dict[str, Any]]:
    told = [] if lived is None else [{"hours": dataclasses.asdict(lived)}]
    return [{"idle": dataclasses.asdict(found)}, *told, *({"round": dataclasses.asdict(one)} for one in churn)]


def main(given: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if given is None else given
    options = arguments(given)
    with (
        own_server.place(load_generator(options.load_binary), directory=options.directory) as place,
        place.serving() as running,
    ):
        running.memory()  # at rest
        found = idle(running, options)
        lived = hours(running, options) if options.minutes else None
        churn = list(rounds(running, options))
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench.idle", *given])
    print(report.preamble(command, note="Load from other processes on the same machine."))
    print(
        "", idle_lines(found), "", *([hours_lines(lived), ""] if lived else []), table(churn, options.objects), sep="\n"
    )
    if options.json:
        with options.json.open("a") as lines:
            lines.writelines(json.dumps(document) + "\n" for document in documents(found, lived, churn))
    fine = found.share["server"] < BAR and not found.ended and not any(one.errors for one in churn)
    if lived:
        fine = fine and levels(lived.later) and not lived.seen["errors"]
    return 0 if fine and levels([one.memory for one in churn]) else 1


if __name__ == "__main__":
    sys.exit(main())
