"""``python -m kubechronicle.ops.bench.sessions``: the CPU of the API server for the bytes of exec, port-forward and cp.

    python -m kubechronicle.ops.bench.sessions                              this server, all cases
    python -m kubechronicle.ops.bench.sessions --reference --rounds 5       in turns with a real kube-apiserver
    python -m kubechronicle.ops.bench.sessions --tree DIR exec-output       in turns with another checkout
    python -m kubechronicle.ops.bench.sessions --beside --reference         other requests beside 200 sessions and logs

kubectl is on one end, a stand-in with the streaming code of kubelets on the other (tests/clients/kubelet). Each case
runs over WebSocket and over SPDY. The CPU of the API server alone counts, without its store: seconds for 100 MB. The
servers run at the same time, and take turns within each round; the table has medians.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kubechronicle.ops.bench import report
from kubechronicle.ops.bench.sessions.loads import CASES, TRANSPORTS, Load
from kubechronicle.ops.bench.sessions.servers import Side, kubelet, our_side, prepare, reference_side

_HEADER: Final = "| work | over | {} |\n|---|---|{}|"
_BESIDE: Final = (
    "| server | GET p50, p99 ms: quiet | beside | p99 ratio, range | CPU of a second, in cores | MiB: before, at the "
    "begin, at the end | failed |\n|---|---|---|---|---|---|---|"
)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.sessions", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"default: all of {', '.join(CASES)}")
    parser.add_argument("--over", choices=TRANSPORTS, action="append", help="default: both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=200, help="bytes of one session")
    parser.add_argument("--reference", action="store_true", help="also a kube-apiserver (of make differential)")
    parser.add_argument("--tree", type=Path, metavar="DIR", help="also the server of another checkout")
    parser.add_argument("--beside", action="store_true", help="the latency of GETs beside many sessions, instead")
    parser.add_argument("--sessions", type=int, default=200, help="sessions and logs, each, of --beside")
    options = parser.parse_args(argv)
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    return options


@contextlib.contextmanager
def open_sides(options: argparse.Namespace) -> Iterator[list[Side]]:
    """Run the servers, each with a pod whose kubelet is the stand-in."""
    with tempfile.TemporaryDirectory(prefix="kubechronicle-sessions-") as directory, contextlib.ExitStack() as stack:
        home = Path(directory)
        home.chmod(0o755)  # under root, Postgres runs as another user, who needs access
        sides = [stack.enter_context(our_side("kubechronicle", home / "ours"))]
        if options.tree:
            sides.append(stack.enter_context(our_side("other checkout", home / "tree", tree=options.tree)))
        if options.reference:
            sides.append(stack.enter_context(reference_side(home / "reference")))
        port = stack.enter_context(kubelet(home))
        for side in sides:
            side.create_pod(port)
        yield sides


def throughput(sides: Sequence[Side], options: argparse.Namespace) -> Iterator[str]:
    """Yield the rows of the table: seconds of CPU for 100 MB, and ratios of this server to each other one."""
    names = [side.name for side in sides]
    columns = [*names, *(f"ratio to {name}, range" for name in names[1:])]
    yield _HEADER.format(" | ".join(columns), "|".join("---" for _ in columns))
    size = options.megabytes * 1_000_000
    for case in options.cases or CASES:
        for over in options.over or TRANSPORTS:
            used: list[list[float]] = [[] for _ in sides]
            for _ in range(options.rounds):
                for side, seconds in zip(sides, used, strict=True):
                    before = side.cpu()
                    CASES[case](Load(side, over, size))
                    seconds.append((side.cpu() - before) / size * 1e8)
            cells = [f"{statistics.median(seconds):.3f}" for seconds in used]
            cells += [
                _ratios([ours / other for ours, other in zip(used[0], others, strict=True)]) for others in used[1:]
            ]
            yield f"| {case} | {over} | {' | '.join(cells)} |"


def _ratios(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f}, {min(values):.2f} to {max(values):.2f}"


def beside(sides: Sequence[Side], options: argparse.Namespace) -> Iterator[str]:
    """Yield the rows of the table of --beside, from rounds in turns."""
    yield _BESIDE
    rounds = [[side.beside(options.sessions) for side in sides] for _ in range(options.rounds)]
    for index, side in enumerate(sides):
        seen = [each[index] for each in rounds]
        middle = [
            ", ".join(f"{statistics.median(values):.1f}" for values in zip(*pairs, strict=True))
            for pairs in ([one.quiet for one in seen], [one.loud for one in seen])
        ]
        ratios = _ratios([one.loud[1] / one.quiet[1] for one in seen])
        cores = f"{statistics.median(one.cores for one in seen):.2f}"
        memory = ", ".join(f"{value:.0f}" for value in seen[-1].memory)
        yield f"| {' | '.join([side.name, *middle, ratios, cores, memory, str(sum(one.failed for one in seen))])} |"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    options = parse_arguments(arguments)
    prepare("kubectl", "kubelet", "informers")
    command = shlex.join(["python", "-m", "kubechronicle.ops.bench.sessions", *arguments])
    print(report.preamble(command, note=f"Load: {Path('/proc/loadavg').read_text().split()[0]}."), flush=True)
    with open_sides(options) as sides:
        try:
            for row in (beside if options.beside else throughput)(sides, options):
                print(row, flush=True)
        except (OSError, subprocess.SubprocessError, RuntimeError) as error:
            print(f"a session failed: {error}", file=sys.stderr)
            return 1
    print(f"Load at the end: {Path('/proc/loadavg').read_text().split()[0]}.")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # let no server stay behind
    sys.exit(main())
