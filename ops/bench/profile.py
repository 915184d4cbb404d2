"""``python -m kubechronicle.ops.bench.profile CASE…``: profile the server under a case of the benchmark.

    make bench-profile ARGS='get-16 create-16'
    python -m kubechronicle.ops.bench.profile get-16 --tree ../old --suffix before

py-spy samples the server's stacks during the measured part. The result is a flame graph, PICTURES/profile-CASE.svg; the
shares of folders and libraries are printed. With --tree, the server is that of another checkout. py-spy and matplotlib
are in .cache/bench, made by `make .cache/bench/made`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kubechronicle.ops.bench import own_server, report, stacks
from kubechronicle.ops.bench.cases import CASES, Case
from kubechronicle.ops.bench.own_server import ROOT, Running, load_generator
from kubechronicle.ops.development.server_process import Stat

DRAWING = ROOT / ".cache" / "bench" / "bin"
ATTACH_SECONDS = 1.5  # py-spy reads the program's symbols first, while the load runs
MAX_SHARES = 12


@dataclass(slots=True)
class Spy:
    """py-spy, started at the load generator's first mark."""

    command: Sequence[str]
    process: subprocess.Popen[str] | None = None

    def __call__(self) -> list[Stat]:
        """Start py-spy. Called at each mark, as a process group of the sampler; returns no processes."""
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        return []

    def wait(self) -> None:
        if self.process is None:
            return
        _, errors = self.process.communicate(timeout=60)
        if self.process.returncode:
            raise SystemExit(f"py-spy failed: {errors.strip()}")


def record(running: Running, case: Case, options: argparse.Namespace, to: Path) -> None:
    """Sample the server's stacks under the case's load."""
    if case.fill:
        running.run_load(mode="fill", namespace=case.namespace, count=case.fill, conns=16, size=1024)
    spy = Spy(
        [
            str(DRAWING / "py-spy"),
            "record",
            "--pid",
            str(running.server.pid),
            "--format",
            "raw",
            "--function",
            "--rate",
            str(options.rate),
            "--duration",
            str(options.seconds),
            "--output",
            str(to),
            "--full-filenames",
            "--nonblocking",
        ]
    )
    groups = running.sampler.groups
    running.sampler.groups = {**groups, "spy": spy}
    try:
        seconds = options.seconds + ATTACH_SECONDS
        running.run_load(**{**case.load, "namespace": case.namespace, "seconds": seconds, "warm": options.warm})
    finally:
        running.sampler.groups = groups
        spy.wait()


def draw(samples: Path, options: argparse.Namespace, case: Case) -> Path:
    suffix = f"-{options.suffix}" if options.suffix else ""
    target: Path = options.pictures.absolute() / f"profile-{case.name}{suffix}.svg"
    title = f"{case.title}, commit {report.commit(options.tree or ROOT)}"
    python = DRAWING / "python"
    subprocess.run([python, "-m", "kubechronicle.ops.bench.flames", samples, target, title], cwd=ROOT, check=True)
    return target


def summary(case: Case, samples: Path) -> str:
    """Return the shares of folders and libraries in one line."""
    shares = stacks.shares(stacks.samples(samples.read_text().splitlines()))[:MAX_SHARES]
    return f"{case.name}: " + ", ".join(f"{name} {share:.1%}" for name, share in shares)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.profile", description="Draw flame graphs.")
    parser.add_argument("cases", nargs="+", metavar="CASE", help="full names of cases of kubechronicle.ops.bench")
    parser.add_argument("--seconds", type=int, default=8, help="length of the sampled part (default 8)")
    parser.add_argument("--warm", type=float, default=2.0, help="seconds of load before that (default 2)")
    parser.add_argument("--rate", type=int, default=200, help="samples per second (default 200)")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "pictures", metavar="DIR")
    parser.add_argument("--suffix", default="", help="suffix of the pictures' names, such as before")
    parser.add_argument("--tree", type=Path, help="profile the server of another checkout")
    parser.add_argument("--directory", type=Path, help="parent of the data directories (default: /tmp)")
    parser.add_argument("--load-binary", type=Path, help="the load generator (default: built into .cache/bin)")
    options = parser.parse_args(argv)
    if unknown := set(options.cases) - {case.name for case in CASES}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; see python -m kubechronicle.ops.bench --list")
    if not (DRAWING / "py-spy").exists():
        parser.error(f"{DRAWING} is missing: make .cache/bench/made")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(sys.argv[1:] if argv is None else argv)
    load = load_generator(options.load_binary)
    environment = {"PYTHONPATH": str(options.tree.absolute())} if options.tree else None
    for case in (case for case in CASES if case.name in options.cases):
        with (
            own_server.workspace(load, directory=options.directory) as workspace,
            tempfile.TemporaryDirectory() as scratch,
        ):
            samples = Path(scratch) / "samples"
            with workspace.serving(environment=environment) as running:
                record(running, case, options, samples)
            print(summary(case, samples), draw(samples, options, case), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
