"""``python -m kubechronicle.ops.bench.databases``: the gain of a second database, for Events and Leases.

    python -m kubechronicle.ops.bench.databases                              200 nodes, at 5 times the normal rate
    python -m kubechronicle.ops.bench.databases --compress 60 --seconds 15   more than one process can take

The nodes of nodes.py, on a new server with one database and on one with two, in turns: machines are not as fast in one
minute as in the next. The order changes each round. Both databases are on one disk, so what a second disk or machine
adds is not in the figures. The table has the median of the rounds, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Final

from kubechronicle.ops import terminal
from kubechronicle.ops.bench import nodes, own_server, report
from kubechronicle.ops.bench.measure import Load
from kubechronicle.ops.bench.nodes import Result
from kubechronicle.ops.bench.own_server import load_generator, second_database

ONE, TWO = "one", "two"


def _ms(kind: str, quantile: str) -> Callable[[Result], float]:
    return lambda result: float(result.measured.seen["kinds"].get(kind, {}).get("ms", {}).get(quantile, 0.0))


def _us_per_request(group: str) -> Callable[[Result], float]:
    """Return the CPU microseconds of a group of processes for each request."""
    return lambda result: result.measured.usage.cpu.get(group, 0.0) / max(1, result.measured.seen["operations"]) * 1e6


ROWS: Final[Sequence[tuple[str, Callable[[Result], float], str]]] = (
    ("requests per second, all writes", lambda result: float(result.measured.seen["per_second"]), ",.0f"),
    ("of those planned", lambda result: result.kept_up, ".0%"),
    ("CPU per request: server, µs", _us_per_request("server"), ",.0f"),
    ("main Postgres, µs", _us_per_request("postgres"), ",.0f"),
    ("second Postgres, µs", _us_per_request("second"), ",.0f"),
    (
        "busiest session of the main Postgres, of a core",
        lambda result: result.measured.usage.busiest["postgres"],
        ".0%",
    ),
    ("disk busy", lambda result: result.measured.usage.disk, ".0%"),
    ("renewal of a Lease, p50 ms", _ms("lease", "p50"), ".2f"),
    ("p99 ms", _ms("lease", "p99"), ".2f"),
    ("status of a Node, in the main log, p50 ms", _ms("node status", "p50"), ".2f"),
    ("p99 ms", _ms("node status", "p99"), ".2f"),
)
"""Rows of the table: title, value, format."""


def measured(load: Load, options: argparse.Namespace, databases: str) -> Result:
    """Measure a new server. LoadError."""
    with (
        second_database(options.directory) if databases == TWO else nullcontext() as second,
        own_server.workspace(load, directory=options.directory) as workspace,
        workspace.serving(workers=options.workers, second=second) as running,
    ):
        return nodes.measure(running, options)


def table(results: dict[str, list[Result]]) -> str:
    lines = ["| | one database | two databases |", "|---|---|---|"]
    for title, value, form in ROWS:
        cells = []
        for databases in (ONE, TWO):
            found = sorted(value(result) for result in results[databases])
            middle, ends = statistics.median(found), f"{found[0]:{form}} to {found[-1]:{form}}"
            cells.append(f"{middle:{form}} ({ends})" if len(found) > 1 else f"{middle:{form}}")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def parse_arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, int]:
    """Return the options of nodes.py, and the number of rounds."""
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.databases", add_help=False)
    parser.add_argument("--rounds", type=int, default=3)
    own, rest = parser.parse_known_args(argv)
    usual = ["--nodes", "200", "--pods-per-node", "5", "--compress", "5", "--seconds", "20"]
    return nodes.parse_arguments([*usual, *rest]), own.rounds


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    options, rounds = parse_arguments(argv)
    load = load_generator(options.load_binary)
    results: dict[str, list[Result]] = {ONE: [], TWO: []}
    for number in range(rounds):
        for databases in (ONE, TWO) if number % 2 == 0 else (TWO, ONE):
            result = measured(load, options, databases)
            results[databases].append(result)
            terminal.stderr().line(
                f"round {number + 1}, {databases}: {result.measured.seen['per_second']:,.0f} requests per second"
            )
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench.databases", *argv])
    print(report.preamble(command, note="Load from other processes on the same machine."))
    print("", table(results), sep="\n")
    return 1 if any(result.measured.seen["errors"] for each in results.values() for result in each) else 0


if __name__ == "__main__":
    sys.exit(main())
