"""Evaluation of rules on objects. The causes are those that kube-apiserver v1.36 gave for the same objects."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kubechronicle.api.custom.rules import OUT_OF_BUDGET, CustomRules

RULES = "x-kubernetes-validations"


def in_spec(*rules: dict[str, Any], **properties: Any) -> CustomRules:
    spec = {"type": "object", "properties": properties, RULES: list(rules)}
    return CustomRules({"type": "object", "properties": {"spec": spec}})


def of(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec}


def texts(rules: CustomRules, new: Any, old: Any = None) -> list[str]:
    return [f"{cause.reason} {cause}" for cause in rules.validate(new, old)[0]]


INTEGER = {"type": "integer"}
STRING = {"type": "string"}


def test_a_false_rule_of_an_object_shows_no_value() -> None:
    rules = in_spec({"rule": "self.min <= self.max"}, min=INTEGER, max=INTEGER)
    assert texts(rules, of(min=2, max=1)) == [
        "FieldValueInvalid spec: Invalid value: failed rule: self.min <= self.max"
    ]
    assert texts(rules, of(min=1, max=1)) == []


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("", 'FieldValueInvalid spec.name: Invalid value: "bad": no'),
        ("FieldValueForbidden", "FieldValueForbidden spec.name: Forbidden: no"),
        ("FieldValueRequired", "FieldValueRequired spec.name: Required value: no"),
        ("FieldValueDuplicate", 'FieldValueDuplicate spec.name: Duplicate value: "bad"'),
    ],
)
def test_the_reason_of_a_rule_is_that_of_its_cause(reason: str, cause: str) -> None:
    rule = {"rule": "self != 'bad'", "message": " no "} | ({"reason": reason} if reason else {})
    assert texts(in_spec(name={**STRING, RULES: [rule]}), of(name="bad")) == [cause]


def test_a_cause_names_the_field_path_of_its_rule() -> None:
    rule = {"rule": "!has(self.labels) || self.labels['a'] == 'b'", "message": "m", "fieldPath": ".labels['a']"}
    rules = in_spec(rule, labels={"type": "object", "additionalProperties": STRING})
    assert texts(rules, of(labels={"a": "x"})) == ["FieldValueInvalid spec.labels[a]: Invalid value: m"]


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("'a is ' + self.a", "a is x"),
        ("''", "fallback"),
        ("'a\\nb'", "fallback"),
        ("self.nothing", "fallback"),
        ("'b' + string(oldSelf.a)", "fallback"),
    ],
)
def test_a_message_expression_that_fails_leaves_the_message(expression: str, shown: str) -> None:
    rule = {"rule": "self.a != 'x'", "messageExpression": expression, "message": "fallback"}
    assert texts(in_spec(rule, a=STRING, nothing=STRING), of(a="x")) == [
        f"FieldValueInvalid spec: Invalid value: {shown}"
    ]


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("self.i / self.j > 0", "division by zero evaluating rule: "),
        ("self.m['k'] == 'v'", "no such key: k evaluating rule: "),
        (
            "self.ios > 3",
            "'no such overload': call arguments did not match a supported operator, function or macro signature "
            "for rule: ",
        ),
    ],
)
def test_a_rule_that_fails_shows_the_type_of_its_value(rule: str, why: str) -> None:
    rules = in_spec(
        {"rule": rule},
        i=INTEGER,
        j=INTEGER,
        m={"type": "object", "additionalProperties": STRING},
        ios={"x-kubernetes-int-or-string": True},
    )
    assert texts(rules, of(i=1, j=0, m={}, ios="x")) == [
        f'FieldValueInvalid spec: Invalid value: "object": {why}{rule}'
    ]


def test_metadata_and_kind_are_known_at_the_root_and_in_embedded_resources() -> None:
    embedded = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
        RULES: [{"rule": "self.kind == 'Pod' && self.metadata.name != 'z'", "message": "pods only"}],
    }
    schema = {"type": "object", "properties": {"pod": embedded}, RULES: [{"rule": "self.metadata.name != 'nope'"}]}
    new = {"apiVersion": "v1", "kind": "W", "metadata": {"name": "nope"}, "pod": {"kind": "Pod", "metadata": {}}}
    assert texts(CustomRules(schema), new) == [
        "FieldValueInvalid <nil>: Invalid value: failed rule: self.metadata.name != 'nope'",
        'FieldValueInvalid pod: Invalid value: "object": no such key: name evaluating rule: pods only',
    ]


class TestTransitions:
    def test_a_rule_about_the_stored_value_applies_to_updates_only(self) -> None:
        rules = in_spec(i={**INTEGER, RULES: [{"rule": "self >= oldSelf", "message": "grow"}]})
        assert texts(rules, of(i=1)) == []
        assert texts(rules, of(i=1), of(i=2)) == ["FieldValueInvalid spec.i: Invalid value: 1: grow"]
        assert texts(rules, of(i=1), of()) == []

    def test_items_of_a_keyed_list_are_compared_with_those_of_the_same_keys(self) -> None:
        item = {"type": "object", "properties": {"k": STRING, "v": INTEGER}, RULES: [{"rule": "self.v >= oldSelf.v"}]}
        keyed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item}
        new, old = [{"k": "b", "v": 1}, {"k": "c", "v": 0}], [{"k": "a", "v": 9}, {"k": "b", "v": 5}]
        assert texts(in_spec(l=keyed), of(l=new), of(l=old)) == [
            "FieldValueInvalid spec.l[0]: Invalid value: failed rule: self.v >= oldSelf.v"
        ]

    def test_an_optional_stored_value_is_absent_in_a_creation(self) -> None:
        rule = {
            "rule": "!oldSelf.hasValue() || self.i >= oldSelf.value().i",
            "optionalOldSelf": True,
            "message": "grow",
        }
        rules = in_spec(rule, i=INTEGER)
        assert texts(rules, of(i=1)) == []
        assert texts(rules, of(i=1), of(i=2)) == ["FieldValueInvalid spec: Invalid value: grow"]

    def test_an_unchanged_value_may_stay_invalid_with_a_warning(self) -> None:
        keyed = {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": STRING, "v": {**INTEGER, RULES: [{"rule": "self < 5"}]}}},
        }
        rules = in_spec(l=keyed)
        old = of(l=[{"k": "a", "v": 7}, {"k": "b", "v": 1}])
        moved = of(l=[{"k": "b", "v": 1}, {"k": "a", "v": 7}])
        assert rules.validate(moved, old) == ([], ["spec.l[1].v: Invalid value: 7: failed rule: self < 5"])
        changed = of(l=[{"k": "b", "v": 1}, {"k": "a", "v": 8}])
        assert texts(rules, changed, old) == ["FieldValueInvalid spec.l[1].v: Invalid value: 8: failed rule: self < 5"]

    def test_items_without_keys_are_tolerated_with_their_whole_list_alone(self) -> None:
        rules = in_spec(l={"type": "array", "items": {**STRING, RULES: [{"rule": "self != 'bad'"}]}})
        assert texts(rules, of(l=["bad"]), of(l=["bad"])) == []
        assert len(texts(rules, of(l=["bad", "a"]), of(l=["bad"]))) == 1


class TestCosts:
    def test_a_rule_over_its_limit_ends_the_evaluation(self) -> None:
        rules = in_spec(
            {"rule": "self.l.all(x, self.l.all(y, x + y != 'ab'))"},
            {"rule": "false", "message": "never reached"},
            l={"type": "array", "items": STRING},
        )
        found = texts(rules, of(l=["a"] * 2000))
        assert len(found) == 1
        assert "operation cancelled: actual cost limit exceeded" in found[0]
        assert "no further validation rules will be run due to call cost exceeds limit for rule" in found[0]

    def test_all_rules_of_an_object_share_a_budget(self) -> None:
        item = {**STRING, RULES: [{"rule": "self.matches('^a*$')"}]}
        rules = in_spec(l={"type": "array", "items": item})
        began = time.process_time()
        found = texts(rules, of(l=["a" * 9_000] * 20_000))
        assert time.process_time() - began < 5
        assert len(found) == 1
        assert found[0].endswith(f'Invalid value: "string": {OUT_OF_BUDGET}')

    def test_a_schema_without_rules_costs_nothing(self) -> None:
        assert CustomRules({"type": "object", "properties": {"a": STRING}}).validate({"a": 1}) == ([], [])


def test_null_counts_as_absent_in_the_rules_above_it() -> None:
    nullable = {**STRING, "nullable": True, RULES: [{"rule": "self != 'n'"}]}
    rules = in_spec({"rule": "has(self.a)", "message": "a is missing"}, a=nullable)
    assert texts(rules, of(a=None)) == ["FieldValueInvalid spec: Invalid value: a is missing"]
    assert texts(rules, of(a="x")) == []


def test_a_field_whose_name_is_no_identifier_has_rules_of_its_own() -> None:
    rules = in_spec(**{"a-b": {**STRING, RULES: [{"rule": "self != 'ab'"}]}})
    assert texts(rules, of(**{"a-b": "ab"})) == [
        "FieldValueInvalid spec.a-b: Invalid value: \"ab\": failed rule: self != 'ab'"
    ]


def test_rules_of_the_items_of_an_object_cannot_be_compiled() -> None:
    rule, nested = {"rule": "self.n < 10"}, {**INTEGER, RULES: [{"rule": "self < 5"}]}
    item = {"type": "object", "properties": {"n": nested}, RULES: [rule]}
    why = "rule compiler initialization error: failed to convert to declType for CEL validation rules"
    listed = of(list=[{"n": 7}])
    failed = "failed rule: self < 5"
    assert texts(in_spec(list={"type": "array", "items": item}), listed) == [
        f"FieldValueInvalid spec.list[0].n: Invalid value: 7: {failed}"
    ]
    assert texts(in_spec(list={"type": "object", "items": item}), listed) == [
        f'FieldValueInvalid spec.list[0]: Invalid value: "object": {why}'
    ]
    assert texts(in_spec(list={"type": "object", "items": item}), of(list={})) == []
