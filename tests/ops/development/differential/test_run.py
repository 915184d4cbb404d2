"""A small run: two servers of this project have no differences, and a seed gives the same requests again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kubechronicle.ops.development.differential import __main__ as command
from kubechronicle.ops.development.differential import catalogue, reference, report, work
from kubechronicle.ops.development.differential.reference import Unavailable, our_server
from kubechronicle.ops.development.differential.seeds import Seeds
from kubechronicle.ops.development.differential.steps import Conversation
from kubechronicle.ops.development.differential.transport import Connection


@pytest.fixture(scope="module")
def plan() -> Iterator[work.Plan]:
    with our_server() as first, our_server() as second:
        known = catalogue.load(Connection(first))
        yield work.Plan(first, second, "1", known, Seeds(known), seconds=60, requests=200, workers=1)


def test_two_servers_of_the_same_kind_do_not_differ(plan: work.Plan, tmp_path: Path) -> None:
    totals, groups, seconds = work.run(plan)
    assert not totals.failures
    assert totals.requests >= 200
    shown = report.markdown(totals, groups, seconds, plan.seed, "x")
    assert (totals.core, totals.strict) == (0, 0), shown
    report.write(tmp_path / "report.md", totals, groups, seconds, plan.seed, "x")
    assert "core differences: 0 (0.000 %)" in (tmp_path / "report.md").read_text()


def test_a_seed_gives_the_same_requests_again(plan: work.Plan) -> None:
    played = []
    for _ in range(2):
        connections = Connection(plan.reference), Connection(plan.ours)
        exchanges, _ = work.play(plan, "1:3", Conversation(*connections, work.tag()))
        played.append([exchange.step.plain() for exchange in exchanges])
        for connection in connections:
            connection.close()
    assert played[0] == played[1]
    assert work.sequence_of(replace(plan, kinds=frozenset({"pods"})), "1:3").resource.kind == "Pod"


def test_without_a_reference_a_run_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.contextmanager
    def missing(**_: object) -> Iterator[None]:
        raise Unavailable("no Go here")
        yield

    monkeypatch.setattr(reference, "reference_server", missing)
    assert command.main([]) == 0
    assert capsys.readouterr().out == "differential: skipped: no Go here\n"
