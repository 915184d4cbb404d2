"""``python -m kubechronicle.ops.bench.curves``: CPU, latency, rate and memory along six axes.

    make bench-curves                                              all curves, with pictures
    python -m kubechronicle.ops.bench.curves writers log           two curves
    python -m kubechronicle.ops.bench.curves objects --to 1000000 --budget 1200     farther than by default
    python -m kubechronicle.ops.bench.curves log --to 10000000 --budget 3600        with 40 GB of disk
    python -m kubechronicle.ops.bench.curves log --at 20000        at one position
    python -m kubechronicle.ops.bench.curves log --to 10000000 --kept DIR --fill    fills data directories once
    python -m kubechronicle.ops.bench.curves log --to 10000000 --kept DIR           measures them, as often as needed

Curves: objects, watchers, writers, log (its length), workers (processes of one server), replicas (servers on one
Postgres). Each curve runs its own servers and takes about --budget at most; positions without time left are skipped and
reported. Each curve is printed as a table. With --json, all figures go to a file, one document per line, for --pictures
(or draw.py).
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kubechronicle.ops.bench import report
from kubechronicle.ops.bench.curves import filling
from kubechronicle.ops.bench.curves.bench import Bench
from kubechronicle.ops.bench.curves.measuring import CURVES
from kubechronicle.ops.bench.curves.points import Point
from kubechronicle.ops.bench.curves.table import table
from kubechronicle.ops.bench.own_server import ROOT, load_generator

DRAWING_PYTHON = ROOT / ".cache" / "bench" / "bin" / "python"


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kubechronicle.ops.bench.curves", description="Measure how a server scales."
    )
    parser.add_argument("curves", nargs="*", metavar="CURVE", help=f"of {', '.join(CURVES)} (default: all)")
    parser.add_argument("--to", type=int, help="the largest position (default: one that takes some minutes)")
    parser.add_argument("--at", type=int, nargs="+", metavar="N", help="these positions instead of the curve's own")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured part of each load (default 3)")
    parser.add_argument("--warm", type=float, default=0.5, help="seconds of load before it (default 0.5)")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for each curve (default 300)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures, one JSON document per line")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="draw DIR/CURVE.svg; needs --json")
    parser.add_argument(
        "--kept", type=Path, metavar="DIR", help="measure objects and log on data directories filled before"
    )
    parser.add_argument("--verify-to", type=int, metavar="N", help="curve log: verify only logs up to N revisions")
    parser.add_argument("--fill", action="store_true", help="only fill the data directories; needs --kept")
    parser.add_argument("--directory", type=Path, help="parent of the data directories (default: /tmp)")
    parser.add_argument("--load-binary", type=Path, help="the load generator (default: built into .cache/bin)")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.curves if name not in CURVES]:
        parser.error(f"no such curve: {', '.join(unknown)}; there are: {', '.join(CURVES)}")
    if options.pictures and not options.json:
        parser.error("--pictures needs --json")
    if options.fill and not options.kept:
        parser.error("--fill needs --kept")
    return options


def positions(name: str, options: argparse.Namespace) -> list[int]:
    if options.at:
        return list(options.at)
    curve = CURVES[name]
    return [x for x in curve.positions if x <= (options.to or curve.upto)]


def run(name: str, bench: Bench, options: argparse.Namespace) -> list[Point]:
    points = []
    for point in CURVES[name].measure(bench, positions(name, options)):
        points.append(point)
        print(f"  {point.work}: {point}" if point.errors else f"  {point.work}", file=sys.stderr, flush=True)
        if options.json:
            with options.json.open("a") as lines:
                lines.write(json.dumps(point.document()) + "\n")
    return points


def draw(options: argparse.Namespace) -> None:
    python = DRAWING_PYTHON if DRAWING_PYTHON.exists() else Path(sys.executable)
    module = "kubechronicle.ops.bench.curves.draw"
    subprocess.run([python, "-m", module, options.json.absolute(), options.pictures.absolute()], cwd=ROOT, check=True)


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    options = parse_arguments(argv)
    bench = Bench(
        load=load_generator(options.load_binary),
        seconds=options.seconds,
        warm=options.warm,
        budget=options.budget,
        directory=options.directory,
        kept=options.kept,
        verify_to=options.verify_to,
    )
    if options.fill:
        for name in options.curves or filling.FILLERS:
            filling.fill(name, bench, positions(name, options))
        return 0
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench.curves", *argv])
    print(report.preamble(command, note="Load from other processes on the same machine."))
    successful = True
    for name in options.curves or list(CURVES):
        points = run(name, bench, options)
        successful = successful and not any(point.errors for point in points)
        print(f"\n{table(name, points)}", flush=True)
    for line in bench.skipped:
        print(f"\nSkipped: {line}")
    if options.pictures:
        draw(options)
    return 0 if successful else 1


if __name__ == "__main__":
    sys.exit(main())
