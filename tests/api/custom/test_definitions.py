"""The check of rules in a definition. The texts and factors are those of kube-apiserver v1.36."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.custom.rule_definitions import TotalCost, rule_problems, times_below
from kubechronicle.api.errors.field_errors import Path

RULES = "x-kubernetes-validations"
ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)
STRING = {"type": "string"}
SPEC = {
    "type": "object",
    "properties": {
        "a": STRING,
        "s5": {"type": "string", "maxLength": 5},
        "i": {"type": "integer"},
        "l": {"type": "array", "items": STRING},
        "l10": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 20}},
        "o": {"type": "object", "properties": {"namespace": STRING, "a-b": STRING}},
        "pu": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def problems(rule: dict[str, Any], **options: Any) -> list[str]:
    given: dict[str, Any] = {"resource": False, "times": 1, "total": TotalCost()} | options
    found = rule_problems({**SPEC, RULES: [rule]}, Path("spec"), **given)
    return [f"{cause.reason} {cause}" for cause in found]


@pytest.mark.parametrize(
    "rule",
    [
        "self.s5.matches('a')",
        "self.l10.all(x, self.l10.exists(y, x != y))",
        "self.o.__namespace__ == 'x' && self.o.a__dash__b == 'x'",
        "oldSelf.a == self.a",
        "self.?a.orValue('x') == 'y'",
    ],
)
def test_rules_that_are_accepted(rule: str) -> None:
    assert problems({"rule": rule}) == []


def test_a_rule_must_be_a_condition() -> None:
    shown = '{"Rule":"self.i","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}'
    assert problems({"rule": "self.i"}) == [
        f"FieldValueInvalid spec.{RULES}[0].rule: Invalid value: {shown}: cel expression must evaluate to a bool"
    ]


def test_a_rule_that_does_not_compile() -> None:
    (found,) = problems({"rule": "self.pu.foo == 1"})
    assert ": compilation failed: ERROR: <input>:1:8: undefined field 'foo'\n | self.pu.foo == 1\n | .......^" in found


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("self.i", "messageExpression must evaluate to a string"),
        ("self.", "messageExpression compilation failed: ERROR: <input>:1:6: Syntax error"),
    ],
)
def test_a_message_expression_must_be_a_text(expression: str, why: str) -> None:
    (found,) = problems({"rule": "true", "messageExpression": expression})
    assert f"{RULES}[0].messageExpression: Invalid value" in found
    assert why in found


def test_a_rule_that_may_cost_too_much() -> None:
    assert problems({"rule": "self.l.all(x, self.l.all(y, x == y))"}) == [
        f"FieldValueForbidden spec.{RULES}[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more "
        f"than 100x {ADVICE}"
    ]
    assert problems({"rule": "self.l.all(x, self.l.all(y, x == y))"}, limited=False) == []


def test_the_number_of_values_multiplies_the_cost() -> None:
    assert problems({"rule": "self.s5 == 'a'"}, times=100) == []
    (found,) = problems({"rule": "self.s5 == 'a'"}, times=4_000_000)
    assert "estimated rule cost exceeds budget by factor of 1.2" in found


def test_costs_of_a_schema_are_limited_together() -> None:
    total = TotalCost()
    for _ in range(12):
        problems({"rule": "self.s5 == 'a'"}, times=3_300_000, total=total)
    found = [str(cause) for cause in total.problems(Path("schema"))]
    notable = f"spec.{RULES}[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit"
    assert [text.startswith(notable) for text in found] == [True, True, True, True, False]
    assert found[-1].startswith("schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire ")


def test_stored_values_need_correlation() -> None:
    assert problems({"rule": "self.i > oldSelf.i"}, uncorrelated="spec.l") == [
        f'FieldValueInvalid spec.{RULES}[0].rule: Invalid value: "self.i > oldSelf.i": oldSelf cannot be used on the '
        "uncorrelatable portion of the schema within spec.l"
    ]
    assert problems({"rule": "self.i > 1", "optionalOldSelf": True}) == [
        f"FieldValueInvalid spec.{RULES}[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not "
        "used in rule"
    ]


@pytest.mark.parametrize(
    ("schema", "times", "below"),
    [
        ({"type": "object"}, 3, 3),
        ({"type": "array", "maxItems": 5}, 3, 15),
        ({"type": "array"}, 3, None),
        ({"type": "object", "additionalProperties": STRING, "maxProperties": 4}, 2, 8),
        ({"type": "object", "additionalProperties": STRING}, 2, None),
        ({"type": "array", "maxItems": 5}, None, None),
        ({"type": "array", "maxItems": -1}, 3, 0),
    ],
)
def test_times_below(schema: dict[str, Any], times: int | None, below: int | None) -> None:
    assert times_below(schema, times) == below


def test_a_value_that_expressions_cannot_name_has_no_rules() -> None:
    (cause,) = rule_problems(
        {"x-kubernetes-preserve-unknown-fields": True, RULES: [{"rule": "true"}]},
        Path("spec"),
        resource=False,
        times=1,
        total=TotalCost(),
    )
    assert cause.reason == "InternalError"
    assert "unable to convert structural schema to CEL declarations" in cause.message
