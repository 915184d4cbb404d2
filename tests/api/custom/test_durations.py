"""Durations of rules, as a clock measures them."""

from __future__ import annotations

from itertools import count

import pytest

from kubechronicle.api.custom.rule import RuleMeasures
from kubechronicle.api.custom.rules import CustomRules

RULES = "x-kubernetes-validations"


def test_each_part_with_rules_is_measured_on_its_own() -> None:
    readings = count()
    compiled: list[float] = []
    evaluated: list[float] = []
    measures = RuleMeasures(lambda: 0.2 * next(readings), compiled.append, evaluated.append)
    size = {"type": "integer", RULES: [{"rule": "self > 0"}, {"rule": "self < 9"}]}
    spec = {"type": "object", "properties": {"size": size, "other": {"type": "string"}}, RULES: [{"rule": "true"}]}
    rules = CustomRules({"type": "object", "properties": {"spec": spec}}, measures=measures)
    assert compiled == pytest.approx([0.2, 0.2])
    assert evaluated == []
    assert rules.validate({"spec": {"size": 3}}) == ([], [])
    assert evaluated == pytest.approx([0.2, 0.2])
    assert len(compiled) == 2
