"""Verdicts as data, the judgement of a run, and its table."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.ops.development.integration import outcomes, table, verdicts
from kubechronicle.ops.development.integration.__main__ import load, save
from kubechronicle.ops.development.integration.outcomes import Outcome
from kubechronicle.ops.development.integration.verdicts import Verdict


def outcome(test: str, how: str, package: str = "a", **more: Any) -> Outcome:
    return Outcome(package=package, test=test, outcome=how, **more)


SAID = verdicts.load("# comment\n\na TestEtcd etcd reads it\na TestFault fault it is wrong\na TestGate gate CBOR\n")
RAN = [
    outcome("TestFault", outcomes.FAIL, failed=["TestFault/x"]),
    outcome("TestGate", outcomes.CRASH),
    outcome("TestNew", outcomes.TIMEOUT),
    outcome("TestGood", outcomes.PASS, passed=["TestGood/x", "TestGood/y"]),
    outcome("TestSkipped", outcomes.SKIP, package="b"),
]


def test_the_verdicts_of_this_project_are_readable() -> None:
    verdicts.load(verdicts.FILE.read_text())


@pytest.mark.parametrize(
    "line", ["a TestX", "a TestX gate", "a TestX perhaps because", "a TestX gate x\na TestX gate y"]
)
def test_a_line_that_is_no_verdict_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="no verdict: a TestX"):
        verdicts.load(line)


def test_a_run_fails_on_what_neither_passes_nor_has_another_verdict_than_fault() -> None:
    assert [each.test for each in verdicts.unexplained(RAN, SAID)] == ["TestFault", "TestNew"]


def test_verdicts_on_tests_that_pass_are_named() -> None:
    assert verdicts.outdated(RAN, SAID | {("a", "TestGood"): Verdict("gate", "x")}) == [RAN[3]]
    assert verdicts.outdated(RAN, SAID) == []


def test_the_table_has_a_row_for_each_package() -> None:
    assert table.rows(RAN, SAID) == [("a", 5, 1, 2, 1, 1, 2), ("b", 1, 0, 0, 1, 0, 0), ("total", 6, 1, 2, 2, 1, 2)]
    assert table.markdown(RAN, SAID).splitlines()[2] == "| a | 5 | 1 | 2 | 1 | 1 | 2 |"


def test_results_are_kept(tmp_path: Any) -> None:
    results = {(each.package, each.test): each for each in RAN}
    assert load(tmp_path / "none.json") == {}
    save(tmp_path / "results.json", results)
    assert load(tmp_path / "results.json") == results
