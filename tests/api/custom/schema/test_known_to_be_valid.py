"""Contents that a schema has found valid: no second walk, and never for others."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from kubechronicle.api.custom.schema import compiled, tables
from kubechronicle.api.custom.schema.compiled import CompiledSchema, compile_schema

SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    },
}


def schema_of(**more: Any) -> CompiledSchema:
    """Return a schema that proves nothing (test_conforming.py), so that it has to walk."""
    schema = compile_schema({"type": "object", "properties": {"spec": SPEC}, **more})
    schema._proof = None
    return schema


def an_object(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": name}, "spec": spec}


def walks(schema: CompiledSchema, obj: dict[str, Any], old: dict[str, Any] | None = None) -> bool:
    """Validate an object. Return whether that took a walk."""
    with patch.object(compiled, "apply", wraps=tables.apply) as apply:
        schema.validate(obj, old)
    return bool(apply.called)


def test_valid_contents_are_known_whatever_their_metadata() -> None:
    schema = schema_of()
    assert walks(schema, an_object(size=1))
    assert not walks(schema, an_object("b", size=1))
    assert walks(schema, an_object(size=2))


def test_other_contents_are_checked() -> None:
    schema = schema_of()
    assert schema.validate(an_object(size=1)) == []
    assert [str(cause.field) for cause in schema.validate(an_object(size=0))] == ["spec.size"]
    assert schema.validate(an_object(size=True))


@pytest.mark.parametrize("spec", [{"size": 0}, {"tags": ["a", "a"]}])
def test_tolerated_contents_are_not_known(spec: dict[str, Any]) -> None:
    schema = schema_of()
    old = an_object(**spec)
    assert schema.validate(an_object(**spec), old) == []
    assert schema.validate(an_object(**spec))


@pytest.mark.parametrize(
    "more",
    [
        {"properties": {"spec": SPEC, "metadata": {"type": "object", "properties": {"name": {"maxLength": 3}}}}},
        {"additionalProperties": {"type": "object"}},
        {"not": {"properties": {"metadata": {"properties": {"name": {"enum": ["b"]}}}}}},
    ],
)
def test_nothing_is_known_where_the_metadata_counts(more: dict[str, Any]) -> None:
    schema = schema_of(**more)
    assert walks(schema, an_object(size=1))
    assert walks(schema, an_object(size=1))
