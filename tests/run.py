"""All checks, as `make test` runs them: ruff, mypy --strict, pytest; one closing line with the totals.

    python -m tests.run [--lint-only] [ARGUMENT OF PYTEST]…

Without arguments the tests are run by several processes (pytest-xdist), mypy beside them, and afterwards those marked
``alone``, whose figures mean nothing on a busy machine, in one process with nothing beside it. With arguments it is all
one after the other in one process, so that -x, -s and --pdb do what they always do.

ruff and mypy count as a test each. Exit code 1 if anything failed, and if anything was cut short, by a worker that died
or an interrupt (Ctrl-C or SIGTERM).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINTS = (
    ("ruff", [sys.executable, "-m", "ruff", "check", "--quiet", "."]),
    ("ruff format", [sys.executable, "-m", "ruff", "format", "--check", "--quiet", "."]),
    ("mypy", [sys.executable, "-m", "mypy", "--strict", "-p", "kubechronicle"]),
)
# Two even on one core, as many tests wait for servers; more than four would want Postgres and memory for each.
WORKERS = max(2, min(4, os.cpu_count() or 1))
# worksteal: each has its own part of the tests, in order, and takes from the other's end when it is through.
TOGETHER = ["-m", "not alone", "-n", str(WORKERS), "--dist", "worksteal", "--durations", "20", "--durations-min", "3"]
ALONE = ["-m", "alone"]


class Totals:
    """A pytest plugin that counts each test once: failed if any of its phases failed."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.outcomes[report.nodeid] = "failed"
        elif report.skipped:
            self.outcomes.setdefault(report.nodeid, "skipped")
        elif report.when == "call":
            self.outcomes.setdefault(report.nodeid, "passed")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.outcomes[f"collection of {report.nodeid}"] = "failed"
        elif report.skipped:  # a whole file
            self.outcomes[f"collection of {report.nodeid}"] = "skipped"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """pytest-xdist starts another worker for one that died, and blames the test it was in, if it was in one."""
        if error:
            self.outcomes[f"worker {node.gateway.id}"] = "failed"

    def count(self, outcome: str) -> int:
        return sum(found == outcome for found in self.outcomes.values())


@contextmanager
def linting(totals: Totals) -> Iterator[None]:
    """The linters beside what the block does; what they say comes afterwards, in one piece."""
    running = {
        name: subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for name, command in LINTS
    }
    try:
        yield
        for name, process in running.items():
            said, _ = process.communicate()
            print(f"== {name}\n{said}", end="", flush=True)
            totals.outcomes[name] = "failed" if process.returncode else "passed"
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def terminated(signum: int, frame: FrameType | None) -> NoReturn:
    """A CI job's time limit: as Ctrl-C, which the workers get as well, so that they end the servers they started."""
    with suppress(OSError):  # no such file: no Linux, where workers are told a little later
        for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(child), signal.SIGINT)
    raise KeyboardInterrupt


def tested(totals: Totals, *arguments: str) -> bool:
    """Run pytest; False if it did not come to its end, which counts as a failure."""
    print(f"== pytest {' '.join(arguments)}", flush=True)
    code = pytest.main(["--rootdir", str(ROOT), *arguments], plugins=[totals])
    ended = code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if not ended:
        totals.outcomes[f"pytest itself: {' '.join(arguments)}"] = "failed"
    return ended


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGTERM, terminated)
    totals = Totals()
    if argv:
        with linting(totals):
            pass
        if argv[0] != "--lint-only":
            tested(totals, *argv)
    else:
        tests = ROOT / "tests"
        with linting(totals):
            ended = tested(totals, *TOGETHER, str(tests))
        if ended:
            # Only files that have some: to collect them all takes as long as a hundred tests.
            files = [str(file) for file in sorted(tests.rglob("test_*.py")) if "mark.alone" in file.read_text()]
            tested(totals, *ALONE, *files)
    failed = totals.count("failed")
    print(f"{totals.count('passed')} passed, {failed} failed, {totals.count('skipped')} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
