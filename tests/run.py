"""All checks, as `make test` runs them: ruff, mypy --strict and pytest, with the totals in the last line.

    python -m tests.run [--lint-only] [ARGUMENT OF PYTEST]…

Without arguments, the tests are compiled, with mypy at the same time. Then several processes (pytest-xdist) run them.
Then one process runs the tests marked ``alone``, with nothing else: their measurements mean nothing on a busy machine.
With arguments, one process runs everything in sequence, so that -x, -s and --pdb work as usual.

ruff and mypy count as a test each. The exit code is 1 after a failure, a dead worker or an interrupt (Ctrl-C, SIGTERM).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
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
# Three even on one or two cores, as many tests wait for servers. At most four: each needs memory and a Postgres.
WORKERS = max(3, min(4, os.cpu_count() or 1))
# worksteal: each process runs its own part of the tests in order, then takes tests from the end of another part.
TOGETHER = ["-m", "not alone", "-n", str(WORKERS), "--dist", "worksteal", "--durations", "20", "--durations-min", "3"]
ALONE = ["-m", "alone"]
COMPILED = ROOT / ".cache" / "tests-compiled"  # its time is that of the last compilation


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
        """Count a dead worker as a failure. pytest-xdist replaces it, and fails only the test it was running."""
        if error:
            self.outcomes[f"worker {node.gateway.id}"] = "failed"

    def count(self, outcome: str) -> int:
        return sum(each == outcome for each in self.outcomes.values())


@contextmanager
def linting(totals: Totals) -> Iterator[None]:
    """Run the linters during the block. Print their output afterwards."""
    running = {
        name: subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for name, command in LINTS
    }
    try:
        yield
        for name, process in running.items():
            output, _ = process.communicate()
            print(f"== {name}\n{output}", end="", flush=True)
            totals.outcomes[name] = "failed" if process.returncode else "passed"
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def compile_tests() -> None:
    """Compile the modules of the tests once, as each worker would otherwise: pytest rewrites their assertions, which
    takes longer than all the rest of a collection. The results stay; without a changed file there is nothing to do.
    Problems are left for the real run to show."""
    changed = max(file.stat().st_mtime for file in (ROOT / "tests").rglob("*.py"))
    if COMPILED.exists() and COMPILED.stat().st_mtime > changed:
        return
    began = time.time()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    collect = [sys.executable, "-m", "pytest", "--rootdir", str(ROOT), "--collect-only", "-qq", str(ROOT / "tests")]
    done = subprocess.run(collect, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)
    if done.returncode == 0:
        COMPILED.parent.mkdir(exist_ok=True)
        COMPILED.touch()
        os.utime(COMPILED, (began, began))  # files edited meanwhile are newer


def handle_sigterm(signum: int, frame: FrameType | None) -> NoReturn:
    """Treat SIGTERM (the time limit of a CI job) as Ctrl-C, also in the workers, so that they stop their servers."""
    with suppress(OSError):  # no such file: not Linux; workers are interrupted a little later
        for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(child), signal.SIGINT)
    raise KeyboardInterrupt


def run_pytest(totals: Totals, *arguments: str) -> bool:
    """Run pytest. Return False and count a failure if it did not run to the end."""
    print(f"== pytest {' '.join(arguments)}", flush=True)
    code = pytest.main(["--rootdir", str(ROOT), *arguments], plugins=[totals])
    ended = code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if not ended:
        totals.outcomes[f"pytest itself: {' '.join(arguments)}"] = "failed"
    return ended


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGTERM, handle_sigterm)
    totals = Totals()
    if argv:
        with linting(totals):
            pass
        if argv[0] != "--lint-only":
            run_pytest(totals, *argv)
    else:
        tests = ROOT / "tests"
        with linting(totals):
            compile_tests()
            ended = run_pytest(totals, *TOGETHER, str(tests))
        if ended:
            # Only files with such tests: to collect all files takes as long as a hundred tests.
            files = [str(file) for file in sorted(tests.rglob("test_*.py")) if "mark.alone" in file.read_text()]
            run_pytest(totals, *ALONE, *files)
    failed = totals.count("failed")
    print(f"{totals.count('passed')} passed, {failed} failed, {totals.count('skipped')} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
