"""Differences of answers, their two verdicts, and the groups that they form."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.ops.development.differential.compare import Difference, compare
from kubechronicle.ops.development.differential.grouping import Example, Groups, general_path, general_text, signature
from kubechronicle.ops.development.differential.steps import Exchange, Step
from kubechronicle.ops.development.differential.transport import Answer

STEP = Step("POST", "/x", kind="Pod", verb="create")


def exchange(want: Any, have: Any, *, codes: tuple[int, int] = (200, 200), warnings: Any = ((), ())) -> Exchange:
    answers = [Answer(code, "application/json", list(one)) for code, one in zip(codes, warnings, strict=True)]
    return Exchange(STEP, answers[0], answers[1], want, have)


def invalid(*causes: tuple[str, str, str]) -> dict[str, Any]:
    listed = [{"reason": reason, "field": field, "message": message} for reason, field, message in causes]
    text = "; ".join(message for _, _, message in causes)
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422,
            "message": text, "details": {"causes": listed}}  # fmt: skip


def found(one: Exchange) -> list[tuple[str, str, str]]:
    return [(difference.verdict, difference.type, difference.place) for difference in compare(one)]


def test_equal_answers_have_no_differences() -> None:
    assert not compare(exchange({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}))


@pytest.mark.parametrize(
    ("want", "have", "expected"),
    [
        ({"a": 1}, {}, ("core", "field missing", ".a")),
        ({}, {"a": None}, ("core", "field added", ".a")),
        ({"a": 1}, {"a": True}, ("core", "value", ".a")),
        ({"a": [1, 2]}, {"a": [2, 1]}, ("core", "order", ".a")),
        ({"a": [1]}, {"a": [1, 2]}, ("core", "length", ".a")),
        ({"a": {"x/y": [{"b": 1}]}}, {"a": {"x/y": [{"b": 2}]}}, ("core", "value", ".a[x/y][0].b")),
    ],
)
def test_each_field_counts(want: Any, have: Any, expected: tuple[str, str, str]) -> None:
    assert found(exchange(want, have)) == [expected]


def test_another_status_hides_the_rest() -> None:
    rejected = invalid(("FieldValueRequired", "spec.a", "spec.a: Required value"))
    assert found(exchange(rejected, {"kind": "Pod"}, codes=(422, 201))) == [
        ("core", "422 Invalid → 201", "FieldValueRequired spec.a")
    ]


def test_only_the_reference_may_leave_a_request_unanswered() -> None:
    assert not compare(exchange("", {"kind": "Pod"}, codes=(0, 200)))
    assert found(exchange({"kind": "Pod"}, "", codes=(200, 0))) == [("core", "200 → no answer", "")]


def test_causes_count_by_field_and_texts_only_for_strict() -> None:
    want = invalid(("FieldValueInvalid", "spec.a", "spec.a: no"), ("FieldValueRequired", "spec.b", "spec.b: Required"))
    have = invalid(("FieldValueInvalid", "spec.a", "spec.a: no"), ("FieldValueRequired", "spec.c", "spec.c: Required"))
    assert found(exchange(want, have, codes=(422, 422))) == [
        ("core", "cause missing", "FieldValueRequired spec.b"),
        ("core", "cause added", "FieldValueRequired spec.c"),
    ]
    have = invalid(("FieldValueInvalid", "spec.a", "spec.a: NO"), ("FieldValueRequired", "spec.b", "spec.b: Required"))
    assert [one[:2] for one in found(exchange(want, have, codes=(422, 422)))] == [("strict", "message of a cause")]
    have["details"]["causes"] = list(reversed(want["details"]["causes"]))
    assert [one[:2] for one in found(exchange(want, have, codes=(422, 422)))] == [("strict", "order of causes")]


def test_warnings_count_for_strict() -> None:
    one = exchange({}, {}, warnings=(['299 - "unknown field \\"spec.x\\""'], []))
    assert found(one) == [("strict", "warning missing", 'unknown field "spec.x"')]


def test_signatures_leave_out_indices_keys_and_templates() -> None:
    assert general_path(".spec.template.spec.containers[3].resources.limits[example.com/x]") == (
        ".spec.containers[].resources.limits.*"
    )
    assert general_path(".metadata.managedFields[0].fieldsV1[f:spec][f:containers][k:{}][f:env]") == (
        ".metadata.managedFields[].fieldsV1.f:spec.f:containers[].f:env"
    )
    assert general_text(
        'Deployment.apps "x" is invalid: spec.template.spec.containers[0].name: Invalid value: "A": no'
    ) == ("… is invalid: spec.containers[].name: Invalid value: …: no")
    assert general_text("json: cannot unmarshal number into Go struct field A.b of type string") == (
        "json: cannot unmarshal number into Go … of type string"
    )


def test_groups_count_and_keep_the_smallest_example() -> None:
    first, second = Groups(), Groups()
    for groups, place, kind, path in ((first, ".a[0]", "Pod", "/long/path"), (second, ".a[7]", "Job", "/p")):
        difference = Difference("core", "value", place)
        group = groups.add(difference, kind, "create")
        group.example = Example("1:1", [Step("GET", path).plain()], difference)
    first.merge(second)
    (group,) = first.ordered("core")
    assert (group.count, dict(group.kinds)) == (2, {"Pod": 1, "Job": 1})
    assert group.signature == signature(Difference("core", "value", ".a[3]"), "Pod")
    assert group.example is not None
    assert group.example.steps[0]["path"] == "/p"
