"""The outcome of a test and of its subtests, read from what the test program has printed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

PASS, FAIL, SKIP, TIMEOUT, CRASH = "pass", "fail", "skip", "timeout", "crash"
_LINE: Final = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \([\d.]+s\)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one test. ``passed``, ``failed``: its subtests that have no subtests of their own."""

    package: str
    test: str
    outcome: str
    seconds: float = 0.0
    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def read(text: str, *, package: str, test: str, code: int, seconds: float) -> Outcome:
    """Return the outcome of a test from the output and the exit code of its program.

    A test whose subtests were all skipped is skipped. Without a line of its own, it was too slow, or crashed.
    """
    found = {name: outcome.lower() for outcome, name in _LINE.findall(text)}
    parents = {name.rpartition("/")[0] for name in found}
    leaves = {name: outcome for name, outcome in found.items() if name not in parents}
    own = found.get(test)
    if own is None:
        own = TIMEOUT if "panic: test timed out" in text or code < 0 else CRASH
    elif own == PASS and code:
        own = FAIL
    elif own == PASS and test in parents and set(leaves.values()) == {SKIP}:
        own = SKIP
    return Outcome(
        package=package,
        test=test,
        outcome=own,
        seconds=round(seconds, 1),
        passed=[name for name, outcome in leaves.items() if outcome == PASS],
        failed=[name for name, outcome in leaves.items() if outcome == FAIL],
    )
