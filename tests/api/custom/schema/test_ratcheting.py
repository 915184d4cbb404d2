"""Updates tolerate the errors of unchanged values (KEP-4008)."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.custom.schema.compiled import CompiledSchema, compile_schema

LIMITED = {"type": "string", "maxLength": 1}
ITEM = {"type": "object", "properties": {"k": {"type": "string"}, "v": LIMITED}}


def compiled(schema: dict[str, Any]) -> CompiledSchema:
    spec = {"type": "object", "properties": {"a": schema, "b": {"type": "string"}}}
    return compile_schema({"type": "object", "properties": {"spec": spec, "status": spec}})


def fields(schema: dict[str, Any], new: Any, old: Any) -> list[str]:
    """Return the fields of the causes of an update, in which another field changes, too."""
    causes = compiled(schema).validate({"spec": {"a": new, "b": "x"}}, {"spec": {"a": old, "b": "y"}})
    return sorted(cause.field for cause in causes)


KEYED = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": ITEM}


@pytest.mark.parametrize(
    ("schema", "new", "old", "expected"),
    [
        (LIMITED, "ab", "ab", []),
        (LIMITED, "ab", "cd", ["spec.a"]),
        (LIMITED, 5, 5, []),
        ({"type": "object", "additionalProperties": LIMITED}, {"m": "ab", "n": "cd"}, {"m": "ab"}, ["spec.a.n"]),
        ({"type": "array", "items": LIMITED}, ["ab", "c"], ["ab"], ["spec.a[0]"]),
        ({"type": "array", "items": LIMITED}, ["ab"], ["ab"], []),
        (KEYED, [{"k": "2"}, {"k": "1", "v": "ab"}], [{"k": "1", "v": "ab"}], []),
        (KEYED, [{"k": "1", "v": "ab"}, {"k": "2", "v": "cd"}], [{"k": "1", "v": "ab"}], ["spec.a[1].v"]),
    ],
)
def test_correlated_values_that_do_not_change_are_tolerated(
    schema: dict[str, Any], new: Any, old: Any, expected: list[str]
) -> None:
    assert fields(schema, new, old) == expected


def test_an_alternative_is_tolerated_as_a_whole_only() -> None:
    schema = {"type": "object", "properties": {"v": LIMITED, "w": LIMITED}, "allOf": [{"properties": {"v": LIMITED}}]}
    assert fields(schema, {"v": "ab", "w": "x"}, {"v": "ab", "w": "y"}) == ["<nil>", "spec.a.v"]
    assert fields(schema, {"v": "ab"}, {"v": "ab"}) == []


def test_repeated_items_are_tolerated_if_the_old_object_had_some() -> None:
    schema = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
    assert fields(schema, ["a", "a"], ["a"]) == ["spec.a[1]"]
    assert fields(schema, ["a", "a"], ["b", "b"]) == []


def test_fields_of_the_status_are_below_status_and_texts_are_not() -> None:
    schema = compiled({"type": "integer"})
    causes = schema.validate_status({"spec": {"a": "x"}, "status": {"a": "x", "b": "y"}}, {"status": {"a": "x"}})
    assert causes == []
    causes = schema.validate_status({"status": {"a": "x"}}, {})
    assert list(map(str, causes)) == ['status.a: Invalid value: "string": a in body must be of type integer: "string"']
