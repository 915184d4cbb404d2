"""``python -m kubechronicle.ops.bench.idle``: what a server does while nothing happens, and what much leaves behind.

    make bench-idle                     50 informers of 30 watches for 60 s, then 6 rounds of 10,000 objects

First, programs with informers list and watch, over one connection each as client-go has it, and nothing changes: the
server's share of a core (below 1 % is wanted). Then, in rounds, objects are created and deleted beside other informers,
which hear of all of it and leave with the round: what an hour's work leaves in memory shows in some minutes, and the
memory after each round has to level off.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubechronicle.ops.bench import own_server, report
from kubechronicle.ops.bench.own_server import Running, load_generator
from kubechronicle.ops.bench.processes import resident_mib

BAR = 0.01  # of a core
CHURN_INFORMERS, CHURN_WATCHES = 5, 3
LEVEL = 0.05  # what the later half of the rounds may add to memory, as a share


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
        verdict = "levels off" if levels(memory) else "**goes on growing**"
        lines += ["", f"The server's memory {verdict}: {memory[0]:.0f} MiB after one round, {memory[-1]:.0f} at last."]
    return "\n".join(lines)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.idle", description="Measure idleness.")
    parser.add_argument("--informers", type=int, default=50, help="programs with informers (default 50)")
    parser.add_argument("--watches", type=int, default=30, help="resources each of them watches (default 30)")
    parser.add_argument("--seconds", type=float, default=60.0, help="in which nothing happens (default 60)")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds before that (default 3)")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of objects that come and go (default 6)")
    parser.add_argument("--objects", type=int, default=10_000, help="objects of each round (default 10000)")
    parser.add_argument("--http1", action="store_true", help="informers use HTTP/1.1, a connection for each watch")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures, a document on a line")
    parser.add_argument("--directory", type=Path, help="where the data directory is made (default: /tmp)")
    parser.add_argument("--load-binary", type=Path, help="the load generator (default: built into .cache/bin)")
    return parser.parse_args(given)


def documents(found: Idle, churn: Sequence[Round]) -> list[dict[str, Any]]:
    return [{"idle": dataclasses.asdict(found)}, *({"round": dataclasses.asdict(one)} for one in churn)]


def main(given: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if given is None else given
    options = arguments(given)
    with (
        own_server.place(load_generator(options.load_binary), directory=options.directory) as place,
        place.serving() as running,
    ):
        running.memory()  # at rest
        found, churn = idle(running, options), list(rounds(running, options))
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench.idle", *given])
    print(report.preamble(command, note="Load from other processes on the same machine."))
    print("", idle_lines(found), "", table(churn, options.objects), sep="\n")
    if options.json:
        with options.json.open("a") as lines:
            lines.writelines(json.dumps(document) + "\n" for document in documents(found, churn))
    fine = found.share["server"] < BAR and levels([one.memory for one in churn])
    return 0 if fine and not found.ended and not any(one.errors for one in churn) else 1


if __name__ == "__main__":
    sys.exit(main())
