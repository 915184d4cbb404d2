"""Contents that obey all rules: no second evaluation, and never for others."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from kubechronicle.api.custom.rules import CustomRules
from kubechronicle.api.custom.schema.compiled import compile_schema
from kubechronicle.api.custom.schema.known_contents import Contents
from kubechronicle.api.custom.strategy import Checks

RULES = "x-kubernetes-validations"
SMALL = {"rule": "self.size < 10"}


def checks_of(*rules: dict[str, Any], root: Any = (), **more: Any) -> Checks:
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}, RULES: [*rules]}
    schema = {"type": "object", "properties": {"spec": spec, **more}, RULES: [*root]}
    return Checks("g/v1", "K", {}, compile_schema(schema), CustomRules(schema))


def an_object(size: int, name: str = "a") -> dict[str, Any]:
    return {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": name}, "spec": {"size": size}}


def evaluates(checks: Checks, new: dict[str, Any], old: dict[str, Any] | None = None) -> bool:
    """Check an object. Return whether its rules were evaluated."""
    with patch.object(CustomRules, "validate", return_value=([], [])) as validate:
        update = old or an_object(0)
        checks.updated(new, update, Contents(new), warnings=[])
    return bool(validate.called)


def problems(checks: Checks, new: dict[str, Any], old: dict[str, Any]) -> tuple[list[str], list[str]]:
    warnings: list[str] = []
    return [cause.field for cause in checks.updated(new, old, Contents(new), warnings=warnings)], warnings


def test_rules_are_evaluated_once_for_the_same_contents() -> None:
    checks = checks_of(SMALL)
    assert evaluates(checks, an_object(1))
    assert not evaluates(checks, an_object(1, "b"))
    assert evaluates(checks, an_object(2))


def test_other_contents_are_checked() -> None:
    checks = checks_of(SMALL)
    assert problems(checks, an_object(1), an_object(2)) == ([], [])
    assert problems(checks, an_object(10), an_object(1)) == (["spec"], [])
    assert problems(checks, an_object(10), an_object(1)) == (["spec"], [])


def test_tolerated_contents_warn_each_time() -> None:
    checks = checks_of(SMALL)
    for _ in range(2):
        causes, warnings = problems(checks, an_object(10), an_object(10))
        assert causes == []
        assert len(warnings) == 1
    assert problems(checks, an_object(10), an_object(1))[0] == ["spec"]


@pytest.mark.parametrize(
    ("rule", "root"),
    [
        ({"rule": "self.size >= oldSelf.size"}, False),
        ({"rule": "self.size >= oldSelf.orValue(self).size", "optionalOldSelf": True}, False),
        ({"rule": "self.metadata.name != 'b'"}, True),
    ],
)
def test_rules_on_the_metadata_or_the_stored_object_are_evaluated_each_time(
    rule: dict[str, Any], *, root: bool
) -> None:
    checks = checks_of(root=[rule]) if root else checks_of(rule)
    assert evaluates(checks, an_object(1))
    assert evaluates(checks, an_object(1))


GROWING = {"rule": "self.size >= oldSelf.size"}


def test_rules_on_the_stored_object_are_evaluated_once_for_contents_that_stay() -> None:
    checks, old = checks_of(GROWING), an_object(1)
    staying = {**old, "metadata": {"name": "a", "labels": {"l": "1"}}}
    assert evaluates(checks, staying, old)
    assert not evaluates(checks, staying, old)
    assert evaluates(checks, an_object(1), old)  # equal, but not seen to be
    assert evaluates(checks, staying, an_object(0))
    assert problems(checks, staying, an_object(2)) == (["spec"], [])


def test_staying_contents_that_break_a_rule_are_checked_each_time() -> None:
    checks, old = checks_of({"rule": "self.size >= oldSelf.size && self.size < 10"}), an_object(10)
    for _ in range(2):
        causes, warnings = problems(checks, {**old}, old)
        assert (causes, len(warnings)) == (["spec"], 0)


def test_rules_on_the_metadata_are_evaluated_for_contents_that_stay() -> None:
    checks, old = checks_of(root=[{"rule": "self.metadata.name != 'b' && self == oldSelf"}]), an_object(1)
    for _ in range(2):
        assert evaluates(checks, {**old}, old)
