"""The check of JSON schemas within definitions, whose parts may be a schema or something else."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.schema import check
from kubechronicle.api.schema.types import object_type

SCHEMA = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
INTO = "json: cannot unmarshal number into Go struct field JSONSchemaProps"


def checked(schema: dict[str, Any]) -> dict[str, Any]:
    assert check.check(schema, object_type(SCHEMA)) == []
    return schema


def test_unknown_fields_of_a_schema_within_another_go_in_silence() -> None:
    inner = {"type": "string", "unknown": 1, "nullable": False, "required": []}
    for name in ("items", "additionalProperties", "additionalItems"):
        assert checked({name: dict(inner)}) == {name: {"type": "string"}}
    assert checked({"dependencies": {"a": dict(inner), "b": ["c"]}}) == {
        "dependencies": {"a": {"type": "string"}, "b": ["c"]}
    }
    assert checked({"items": [dict(inner)]}) == {"items": [{"type": "string"}]}


def test_other_values_in_place_of_a_schema() -> None:
    assert checked({"additionalProperties": False}) == {"additionalProperties": False}
    assert checked({"items": 5}) == {"items": []}
    assert checked({"dependencies": {}}) == {"dependencies": {}}


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ({"items": {"type": 5}}, f"{INTO}.items.type of type string"),
        ({"additionalProperties": 5}, "boolean or JSON schema expected"),
        ({"dependencies": {"a": [5]}}, f"{INTO}.dependencies of type string"),
    ],
)
def test_ill_typed_parts_are_refused(schema: dict[str, Any], error: str) -> None:
    with pytest.raises(check.TypeMismatch) as caught:
        checked(schema)
    assert str(caught.value) == error


def test_free_values_are_in_the_form_of_the_encoder_of_go() -> None:
    assert checked({"default": {"b": 1.0, "a": [2.5]}, "enum": [3.0, None]}) == {
        "default": {"a": [2.5], "b": 1},
        "enum": [3, None],
    }
