"""Contents that a proof lets pass: the separate walks find nothing to change in them, and no problem."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from kubechronicle.api.custom import numbers
from kubechronicle.api.custom.schema.compiled import CompiledSchema, compile_schema
from kubechronicle.api.custom.schema.known_contents import MAX_DEPTH, digest_of
from kubechronicle.api.custom.version import object_type
from kubechronicle.api.patch import typed_values

TEXT = {"type": "string"}
ITEM = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": TEXT, "port": {"type": "integer", "default": 80}},
}
BY_KEYS = {"type": "array", "x-kubernetes-list-type": "map", "items": ITEM}
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1},
        "ratio": {"type": "number"},
        "text": {**TEXT, "nullable": True, "maxLength": 3},
        "either": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": TEXT}},
        "labels": {"type": "object", "additionalProperties": TEXT, "maxProperties": 2},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT, "maxItems": 3},
        "pairs": {**BY_KEYS, "x-kubernetes-list-map-keys": ["name"]},
        "ports": {**BY_KEYS, "x-kubernetes-list-map-keys": ["name", "port"]},
        "choice": {
            "type": "object",
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "properties": {"a": TEXT, "b": TEXT},
        },
    },
}
SCHEMA = {"type": "object", "required": ["spec"], "properties": {"spec": SPEC}}


def an_object(spec: Any, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a"}, "spec": spec, **more}


def is_proved(schema: CompiledSchema, obj: dict[str, Any]) -> bool:
    return schema.conforms(obj, digest_of(obj))


@pytest.mark.parametrize(
    "spec",
    [
        {"size": 1},
        {"size": 2, "ratio": 1.5, "text": "abc", "either": "1"},
        {"size": 1, "ratio": 2, "either": 3, "labels": {"a": "b"}, "tags": ["a", "b"]},
        {"size": 1, "free": {"a": "b", "other": {"x": [None, {}]}}},
        {"size": 1, "pairs": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]},
        {"size": 1, "ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}], "choice": {"a": ""}},
    ],
)
def test_what_needs_no_other_walk_is_proved(spec: Any) -> None:
    assert is_proved(compile_schema(SCHEMA), an_object(spec))


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"size": 0},
        {"size": True},
        {"size": 1.0},
        {"size": 1, "ratio": 2.0},
        {"size": 1, "text": None},
        {"size": 1, "text": "abcd"},
        {"size": 1, "other": 1},
        {"size": 1, "free": {"a": 1}},
        {"size": 1, "free": 3},
        {"size": 1, "labels": {"a": 1}},
        {"size": 1, "labels": {"a": "", "b": "", "c": ""}},
        {"size": 1, "tags": ["a", "a"]},
        {"size": 1, "tags": ["a", None]},
        {"size": 1, "tags": ["a", "b", "c", "d"]},
        {"size": 1, "pairs": [{"name": "a"}]},
        {"size": 1, "pairs": [{"port": 1}]},
        {"size": 1, "pairs": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]},
        {"size": 1, "ports": [{"name": "a", "port": 1}, {"name": "a", "port": 1}]},
        {"size": 1, "choice": {}},
        {"size": 1, "choice": {"a": "", "b": ""}},
        [],
    ],
)
def test_what_may_need_another_walk_is_not_proved(spec: Any) -> None:
    assert not is_proved(compile_schema(SCHEMA), an_object(spec))


def test_fields_beside_the_schema_are_not_proved() -> None:
    assert not is_proved(compile_schema(SCHEMA), an_object({"size": 1}, status={}))
    assert not is_proved(compile_schema(SCHEMA), {"metadata": {}})


def test_levels_beyond_the_limit_are_not_proved() -> None:
    schema, value = TEXT, "a"
    for _ in range(MAX_DEPTH + 1):
        schema, value = {"type": "object", "properties": {"a": schema}}, {"a": value}
    assert not is_proved(compile_schema({"type": "object", "properties": {"spec": schema}}), an_object(value))


@pytest.mark.parametrize(
    "openapi",
    [
        {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-embedded-resource": True}}},
        {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"maxLength": 3}}}}},
        {"type": "object", "additionalProperties": TEXT},
    ],
)
def test_some_schemas_have_no_proofs(openapi: Any) -> None:
    assert not is_proved(compile_schema(openapi), an_object({}))
    assert not is_proved(compile_schema(SCHEMA, preserve_unknown=True), an_object({"size": 1}))


def some_schema(pick: random.Random, depth: int) -> dict[str, Any]:
    kind = pick.choice(("string", "integer", "number", "boolean", *(("object", "array") * 3 if depth else ())))
    schema: dict[str, Any] = {"type": kind}
    if kind == "string":
        schema |= {"maxLength": 2} if pick.random() < 0.3 else {}
    elif kind == "array":
        items = some_schema(pick, depth - 1)
        schema["items"] = items
        if items["type"] == "object" and "properties" in items:
            schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]}
            items["properties"] |= {"key": pick.choice((TEXT, {"type": "integer", "default": 1}))}
            items["required"] = ["key"] if pick.random() < 0.8 else []
        elif pick.random() < 0.5:
            schema["x-kubernetes-list-type"] = "set"
    elif kind == "object" and pick.random() < 0.3:
        schema["additionalProperties"] = some_schema(pick, depth - 1)
    elif kind == "object":
        schema["properties"] = {name: some_schema(pick, depth - 1) for name in "abc"}
        schema["required"] = pick.sample("abc", pick.randrange(2))
        schema |= {"x-kubernetes-preserve-unknown-fields": True} if pick.random() < 0.1 else {}
    if pick.random() < 0.15:
        schema["default"] = some_value(pick, schema, odd=0.0)
    return schema | ({"nullable": True} if pick.random() < 0.1 else {})


def some_value(pick: random.Random, schema: dict[str, Any], *, odd: float) -> Any:
    if pick.random() < odd:
        return pick.choice((None, 1, 1.0, "x", True, [], {}, {"z": 1}, [{}], 2**40))
    kind = schema["type"]
    if kind == "object":
        below = schema.get("additionalProperties")
        if below:
            return {name: some_value(pick, below, odd=odd) for name in pick.sample("xyz", pick.randrange(3))}
        fields = schema["properties"]
        keep = {*schema["required"], *(name for name in fields if pick.random() < 0.8)}
        found = {name: some_value(pick, fields[name], odd=odd) for name in fields if name in keep}
        return found | ({"unknown": {"a": None}} if pick.random() < odd else {})
    if kind == "array":
        return [some_value(pick, schema["items"], odd=odd) for _ in range(pick.randrange(3))]
    values = {"string": ("a", "b", "cd"), "integer": (1, 2, 3), "number": (1, 1.5, 2**60), "boolean": (True, False)}
    return pick.choice(values[kind])


def test_the_separate_walks_find_nothing_in_proved_contents() -> None:
    proved = 0
    for seed in range(150):
        pick = random.Random(seed)
        spec = {**some_schema(pick, 3), "nullable": False}
        openapi = {"type": "object", "properties": {"spec": spec}}
        schema, kind = compile_schema(openapi), object_type(openapi)
        for _ in range(30):
            obj = an_object(some_value(pick, spec, odd=pick.choice((0.0, 0.0, 0.05))))
            if not is_proved(schema, obj):
                continue
            proved += 1
            text = orjson.dumps(obj)
            plain = compile_schema(openapi)
            plain._proof = None
            assert plain.settle(obj) == [], seed
            assert orjson.dumps(obj) == text == orjson.dumps(numbers.as_written(obj)), seed
            assert plain.validate(obj) == [], seed
            assert typed_values.fits(obj, kind), seed
    assert proved > 1500
