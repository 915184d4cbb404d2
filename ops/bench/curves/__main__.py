"""``python -m kubechronicle.ops.bench.curves``: how CPU, latency, rate and memory change with what there is more of.

    make bench-curves                                              all of them, with pictures
    python -m kubechronicle.ops.bench.curves writers log           two of them
    python -m kubechronicle.ops.bench.curves objects --to 1000000 --budget 1200     farther than by default
    python -m kubechronicle.ops.bench.curves log --to 10000000 --budget 3600        with 40 GB of disk
    python -m kubechronicle.ops.bench.curves log --at 20000        at one place
    python -m kubechronicle.ops.bench.curves log --to 10000000 --kept DIR --fill    what takes long, once and before
    python -m kubechronicle.ops.bench.curves log --to 10000000 --kept DIR           and then as often as wanted

Curves: objects, watchers, writers, log (its length), workers (processes of one server), replicas (servers of their own
on one Postgres). Each runs servers of its own and takes no longer than --budget, as far as can be told beforehand; what
that leaves out is told. A table for each goes to standard output; with --json, all figures to a file, one document a
line, from which --pictures (or draw.py) draws.
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


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kubechronicle.ops.bench.curves", description="Measure how a server scales."
    )
    parser.add_argument("curves", nargs="*", metavar="CURVE", help=f"of {', '.join(CURVES)} (default: all)")
    parser.add_argument("--to", type=int, help="the farthest place (default: what fits into some minutes)")
    parser.add_argument("--at", type=int, nargs="+", metavar="N", help="these places instead of the curve's own")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured part of each load (default 3)")
    parser.add_argument("--warm", type=float, default=0.5, help="seconds of load before it (default 0.5)")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for each curve (default 300)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="draw CURVE.svg there; needs --json")
    parser.add_argument(
        "--kept", type=Path, metavar="DIR", help="measure objects and log on what was filled there before"
    )
    parser.add_argument("--verify-to", type=int, metavar="N", help="of log: verify none with more revisions")
    parser.add_argument("--fill", action="store_true", help="fill, and measure nothing; needs --kept")
    parser.add_argument("--directory", type=Path, help="where data directories are made (default: /tmp)")
    parser.add_argument("--load-binary", type=Path, help="the load generator (default: built into .cache/bin)")
    options = parser.parse_args(given)
    if unknown := [name for name in options.curves if name not in CURVES]:
        parser.error(f"no such curve: {', '.join(unknown)}; there are: {', '.join(CURVES)}")
    if options.pictures and not options.json:
        parser.error("--pictures needs --json")
    if options.fill and not options.kept:
        parser.error("--fill needs --kept")
    return options


def places(name: str, options: argparse.Namespace) -> list[int]:
    if options.at:
        return list(options.at)
    curve = CURVES[name]
    return [x for x in curve.places if x <= (options.to or curve.upto)]


def run(name: str, bench: Bench, options: argparse.Namespace) -> list[Point]:
    found = []
    for point in CURVES[name].measure(bench, places(name, options)):
        found.append(point)
        print(f"  {point.work}: {point}" if point.errors else f"  {point.work}", file=sys.stderr, flush=True)
        if options.json:
            with options.json.open("a") as lines:
                lines.write(json.dumps(point.document()) + "\n")
    return found


def draw(options: argparse.Namespace) -> None:
    python = DRAWING_PYTHON if DRAWING_PYTHON.exists() else Path(sys.executable)
    module = "kubechronicle.ops.bench.curves.draw"
    subprocess.run([python, "-m", module, options.json.absolute(), options.pictures.absolute()], cwd=ROOT, check=True)


def main(given: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if given is None else given
    options = arguments(given)
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
        for name in options.curves or filling.MAKERS:
            filling.fill(name, bench, places(name, options))
        return 0
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench.curves", *given])
    print(report.preamble(command, note="Load from other processes on the same machine."))
    fine = True
    for name in options.curves or list(CURVES):
        found = run(name, bench, options)
        fine = fine and not any(point.errors for point in found)
        print(f"\n{table(name, found)}", flush=True)
    for line in bench.left_out:
        print(f"\nLeft out: {line}")
    if options.pictures:
        draw(options)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
