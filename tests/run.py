"""All checks in a row, as `make test` runs them: ruff, mypy --strict, pytest; one closing line with the totals.

    python -m tests.run [--lint-only] [ARGUMENT OF PYTEST]…

ruff and mypy count as a test each. Exit code 1 if anything failed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINTS = (
    ("ruff", [sys.executable, "-m", "ruff", "check", "--quiet", "."]),
    ("mypy", [sys.executable, "-m", "mypy", "--strict", "-p", "kubechronicle"]),
)


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

    def count(self, outcome: str) -> int:
        return sum(found == outcome for found in self.outcomes.values())


def lint(totals: Totals) -> None:
    for name, command in LINTS:
        print(f"== {name}", flush=True)
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        totals.outcomes[name] = "failed" if code else "passed"


def main(argv: list[str]) -> int:
    totals = Totals()
    lint(totals)
    if argv[:1] != ["--lint-only"]:
        print("== pytest", flush=True)
        code = pytest.main(["--rootdir", str(ROOT), *(argv or [str(ROOT / "tests")])], plugins=[totals])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            totals.outcomes["pytest itself"] = "failed"
    failed = totals.count("failed")
    print(f"{totals.count('passed')} passed, {failed} failed, {totals.count('skipped')} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
