"""``python -m kubechronicle.ops.bench.fairness``: what one noisy client costs 50 nodes and five people.

    python -m kubechronicle.ops.bench.fairness                            with and without priority and fairness
    python -m kubechronicle.ops.bench.fairness --against https://127.0.0.1:6443 --against-token FILE

Each server is measured alone: first quiet, then with a client of 200 connections that lists 10,000 objects of 1 KB as
fast as it can. The noisy client has a lower priority on the machine, so that it does not starve the others' clients.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubechronicle.ops.bench import own_server
from kubechronicle.ops.bench.measure import Load, LoadError, Target

NAMESPACE: Final = "bench-fairness"
OBJECTS: Final = 10_000
_HEADER: Final = (
    "| server | Leases p50, p99 ms: quiet | noisy | p99 ratio | people p50, p99 ms: quiet | noisy | p99 ratio "
    "| failed | lists a second |\n|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Side:
    """One server: its name in the table, and the load generator's flags for it."""

    name: str
    flags: Sequence[str]


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.fairness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each measured part")
    parser.add_argument("--conns", type=int, default=200, help="connections of the noisy client")
    parser.add_argument("--query", default="", help="query of its lists, such as limit=500")
    parser.add_argument("--load-binary", type=Path, help="the load generator (default: built into .cache/bin)")
    parser.add_argument("--against", metavar="URL", default="", help="another running server, of any kind")
    parser.add_argument("--against-token", type=Path, metavar="FILE", help="a token of its administrator")
    return parser.parse_args(argv)


@contextlib.contextmanager
def own_side(load: Load, name: str, *arguments: str) -> Iterator[Side]:
    """Run a fresh server of ours."""
    with own_server.workspace(load) as workspace, workspace.serving(*arguments) as running:
        yield Side(name, [*running.server_flags(), f"-token-file={running.token}"])


def run(load: Load, side: Side, mode: str, options: argparse.Namespace, *, nice: int = 0) -> subprocess.Popen[str]:
    flags = [f"-mode={mode}", f"-namespace={NAMESPACE}", f"-conns={options.conns}", f"-query={options.query}"]
    length = options.seconds if mode == "steady" else options.seconds + 4
    command = ["nice", "-n", str(nice), str(load.binary), *side.flags, *flags, f"-seconds={length}", "-warm=2"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what a load has seen. LoadError."""
    output, errors = process.communicate()
    if process.returncode:
        raise LoadError(errors.strip())
    seen: dict[str, Any] = json.loads(output.splitlines()[-1])
    return seen


def measure(load: Load, side: Side, options: argparse.Namespace) -> str:
    """Return the server's row of the table."""
    fill: dict[str, str | int | float] = {
        "mode": "fill",
        "namespace": NAMESPACE,
        "count": OBJECTS,
        "conns": 16,
        "size": 1024,
    }
    load.run(Target(flags=side.flags, groups={}), fill)
    quiet = result(run(load, side, "steady", options))
    noisy = run(load, side, "noisy", options, nice=10)
    loud = result(run(load, side, "steady", options))
    lists = result(noisy)
    rate = f"{lists['per_second']:.1f}"
    cells = [side.name]
    failed = 0
    for kind in ("leases", "people"):
        for seen in (quiet, loud):
            if not seen[kind]["ms"]:
                why = next(iter(seen[kind]["failed"] or ["none was sent"]))
                raise LoadError(f"no request of the {kind} succeeded: {why}")
        before, after = quiet[kind]["ms"], loud[kind]["ms"]
        cells += [f"{one['p50']:.1f}, {one['p99']:.1f}" for one in (before, after)]
        cells.append(f"{after['p99'] / before['p99']:.1f}")
        failed += sum((loud[kind]["failed"] or {}).values())
    return f"| {' | '.join([*cells, str(failed), rate])} |"


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(sys.argv[1:] if argv is None else argv)
    load = own_server.load_generator(options.load_binary)
    print(_HEADER, flush=True)
    with own_side(load, "ours") as side:
        print(measure(load, side, options), flush=True)
    with own_side(load, "ours, off", "--enable-priority-and-fairness=false") as side:
        print(measure(load, side, options), flush=True)
    if options.against:
        flags = [f"-server={options.against}", f"-token-file={options.against_token}"]
        print(measure(load, Side("theirs", flags), options), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
