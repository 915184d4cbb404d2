"""Durations of rules, as a clock measures them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from kubechronicle.api.custom.rules import durations
from kubechronicle.api.custom.rules.durations import COMPILATION, EVALUATION
from kubechronicle.api.custom.rules.rules import Rules

RULES = "x-kubernetes-validations"


@pytest.fixture
def ticking() -> Iterator[None]:
    """Measure with a clock that advances 0.2 s each time it is read."""
    readings = count()
    before = [(each.clock, each.counts, each.total) for each in (COMPILATION, EVALUATION)]
    for each in (COMPILATION, EVALUATION):
        each.clock, each.counts, each.total = (lambda: 0.2 * next(readings)), [0] * len(each.counts), 0.0
    yield
    for each, (clock, counts, total) in zip((COMPILATION, EVALUATION), before, strict=True):
        each.clock, each.counts, each.total = clock, counts, total


@pytest.mark.usefixtures("ticking")
def test_each_part_with_rules_is_measured_on_its_own() -> None:
    size = {"type": "integer", RULES: [{"rule": "self > 0"}, {"rule": "self < 9"}]}
    spec = {"type": "object", "properties": {"size": size, "other": {"type": "string"}}, RULES: [{"rule": "true"}]}
    rules = Rules({"type": "object", "properties": {"spec": spec}})
    bound = durations.BOUNDS.index(0.25)
    assert (sum(COMPILATION.counts), COMPILATION.counts[bound], round(COMPILATION.total, 6)) == (2, 2, 0.4)
    assert sum(EVALUATION.counts) == 0
    assert rules.validate({"spec": {"size": 3}}) == ([], [])
    assert (sum(EVALUATION.counts), EVALUATION.counts[bound], round(EVALUATION.total, 6)) == (2, 2, 0.4)


@pytest.mark.usefixtures("ticking")
def test_nothing_is_measured_without_a_clock() -> None:
    COMPILATION.clock = EVALUATION.clock = None
    rules = Rules({"type": "object", "properties": {"a": {"type": "string", RULES: [{"rule": "true"}]}}})
    rules.validate({"a": "x"})
    assert sum(COMPILATION.counts) + sum(EVALUATION.counts) == 0
