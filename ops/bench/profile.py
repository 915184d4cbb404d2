"""``python -m kubechronicle.ops.bench.profile CASE…``: where the server's time goes under a case of the benchmark.

    make bench-profile ARGS='get-16 create-16'
    python -m kubechronicle.ops.bench.profile get-16 --tree ../old --suffix before

py-spy looks at the running server's stacks, from outside, during the measured part; the picture is a flame graph,
PICTURES/profile-CASE.svg, and the shares of folders and libraries are printed. With --tree, the server is that of
another checkout. py-spy and what draws live in .cache/bench, made by `make .cache/bench/made`.
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
ATTACH_SECONDS = 1.5  # py-spy reads the program's symbols first; the load goes on meanwhile, and a little after
FOLDERS_TOLD = 12


@dataclass(slots=True)
class Spy:
    """py-spy, begun at the load generator's first mark: until then all was preparation."""

    command: Sequence[str]
    process: subprocess.Popen[str] | None = None

    def __call__(self) -> list[Stat]:
        """No processes: it stands among the groups a sample is of, to be called at each mark."""
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        return []

    def wait(self) -> None:
        if self.process is None:
            return
        _, said = self.process.communicate(timeout=60)
        if self.process.returncode:
            raise SystemExit(f"py-spy failed: {said.strip()}")


def record(running: Running, case: Case, options: argparse.Namespace, to: Path) -> None:
    """Samples of the server under the case's load."""
    if case.fill:
        running.put(mode="fill", namespace=case.namespace, count=case.fill, conns=16, size=1024)
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
        running.put(**{**case.load, "namespace": case.namespace, "seconds": seconds, "warm": options.warm})
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


def told(case: Case, samples: Path) -> str:
    """The innermost frames by folder and library, in a line."""
    found = stacks.shares(stacks.samples(samples.read_text().splitlines()))[:FOLDERS_TOLD]
    return f"{case.name}: " + ", ".join(f"{name} {share:.1%}" for name, share in found)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m kubechronicle.ops.bench.profile", description="Draw flame graphs.")
    parser.add_argument("cases", nargs="+", metavar="CASE", help="full names of cases of kubechronicle.ops.bench")
    parser.add_argument("--seconds", type=int, default=8, help="in which samples are taken (default 8)")
    parser.add_argument("--warm", type=float, default=2.0, help="seconds of load before that (default 2)")
    parser.add_argument("--rate", type=int, default=200, help="samples a second (default 200)")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "pictures", metavar="DIR")
    parser.add_argument("--suffix", default="", help="of the pictures' names, such as before")
    parser.add_argument("--tree", type=Path, help="another checkout, whose server is looked at")
    parser.add_argument("--directory", type=Path, help="where data directories are made (default: /tmp)")
    parser.add_argument("--load-binary", type=Path, help="the load generator (default: built into .cache/bin)")
    options = parser.parse_args(given)
    if unknown := set(options.cases) - {case.name for case in CASES}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; see python -m kubechronicle.ops.bench --list")
    if not (DRAWING / "py-spy").exists():
        parser.error(f"{DRAWING} is missing: make .cache/bench/made")
    return options


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(sys.argv[1:] if given is None else given)
    load = load_generator(options.load_binary)
    environment = {"PYTHONPATH": str(options.tree.absolute())} if options.tree else None
    for case in (case for case in CASES if case.name in options.cases):
        with own_server.place(load, directory=options.directory) as place, tempfile.TemporaryDirectory() as scratch:
            samples = Path(scratch) / "samples"
            with place.serving(environment=environment) as running:
                record(running, case, options, samples)
            print(told(case, samples), draw(samples, options, case), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
