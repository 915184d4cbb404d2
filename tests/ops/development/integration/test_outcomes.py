"""The reading of a test program's output."""

from __future__ import annotations

import pytest

from kubechronicle.ops.development.integration import outcomes
from kubechronicle.ops.development.integration.outcomes import Outcome

OUTPUT = """\
=== RUN   TestA
=== RUN   TestA/one
    --- PASS: TestA/one (0.10s)
    --- FAIL: TestA/two (1.00s)
        --- PASS: TestA/two/deep (0.50s)
        --- FAIL: TestA/two/other (0.50s)
    --- SKIP: TestA/three (0.00s)
--- FAIL: TestA (2.00s)
FAIL
"""


def read(text: str, code: int = 0) -> Outcome:
    return outcomes.read(text, package="p", test="TestA", code=code, seconds=2.04)


def test_subtests_without_subtests_are_counted() -> None:
    found = read(OUTPUT, 1)
    assert (found.outcome, found.seconds) == (outcomes.FAIL, 2.0)
    assert found.passed == ["TestA/one", "TestA/two/deep"]
    assert found.failed == ["TestA/two/other"]


@pytest.mark.parametrize(
    ("text", "code", "outcome"),
    [
        ("--- PASS: TestA (0.1s)\nPASS\n", 0, outcomes.PASS),
        ("--- PASS: TestA (0.1s)\npanic: after the end\n", 2, outcomes.FAIL),
        ("--- SKIP: TestA (0.1s)\n", 0, outcomes.SKIP),
        ("    --- SKIP: TestA/x (0.1s)\n--- PASS: TestA (0.1s)\n", 0, outcomes.SKIP),
        ("panic: test timed out after 4m0s\n", 2, outcomes.TIMEOUT),
        ("", -9, outcomes.TIMEOUT),
        ("panic: nil map\n", 2, outcomes.CRASH),
    ],
)
def test_outcomes(text: str, code: int, outcome: str) -> None:
    assert read(text, code).outcome == outcome
