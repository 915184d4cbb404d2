"""Proofs by forms: they say what the walk says, and learn the fields in use within bounds."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from kubechronicle.api.custom.schema import learned
from kubechronicle.api.custom.schema.compiled import compile_schema
from kubechronicle.api.custom.schema.conforming import proof_of
from kubechronicle.api.custom.schema.failures import Failures
from kubechronicle.api.custom.schema.forms import form_of
from kubechronicle.api.custom.schema.keywords import table
from kubechronicle.api.custom.schema.learned import MAX_FIELDS, MAX_FUTILE, MAX_OBJECTS, LearnedProof
from kubechronicle.api.custom.schema.structure import Node

from .test_conforming import SCHEMA, an_object, some_schema, some_value

TEXT = {"type": "string"}


def of_spec(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def proof_for(openapi: dict[str, Any]) -> LearnedProof:
    return LearnedProof(Node(openapi), table(openapi))


def proves(proof: Any, obj: Any) -> bool:
    failures = Failures()
    return bool(proof(obj, failures)) and not failures


def taught(proof: LearnedProof, obj: dict[str, Any]) -> LearnedProof:
    """Return the proof after so many objects that it has a form, if it can have one."""
    for _ in range(MAX_OBJECTS):
        assert proves(proof, obj)
    return proof


def is_by_form(proof: LearnedProof, obj: dict[str, Any]) -> bool:
    """Return whether the form alone proves an object."""
    walk, proof._walk = proof._walk, lambda value, failures: False
    try:
        return proves(proof, obj)
    finally:
        proof._walk = walk


FULL = {
    "size": 2,
    "ratio": 1.5,
    "text": "abc",
    "either": "1",
    "free": {"a": "b", "other": {"x": [None, {}]}},
    "labels": {"a": "b"},
    "tags": ["a", "b"],
    "pairs": [{"name": "a", "port": 1}, {"name": "b", "port": 1}],
    "ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}],
    "choice": {"a": ""},
}


def test_an_object_of_known_fields_needs_no_walk() -> None:
    proof = proof_for(SCHEMA)
    assert not is_by_form(proof, an_object(FULL))
    taught(proof, an_object(FULL))
    assert is_by_form(proof, an_object(FULL))
    assert is_by_form(proof, an_object({"size": 7, "either": 1, "ratio": 3}))
    assert not is_by_form(proof, an_object(FULL, status={}))


def test_an_object_with_a_new_field_is_proved_and_teaches_it() -> None:
    proof = taught(proof_for(SCHEMA), an_object({"size": 1}))
    assert is_by_form(proof, an_object({"size": 1}))
    assert not is_by_form(proof, an_object({"size": 1, "tags": ["a"]}))
    taught(proof, an_object({"size": 1, "tags": ["a"]}))
    assert is_by_form(proof, an_object({"size": 1, "tags": ["a"]}))
    assert not proves(proof, an_object({"size": 1, "tags": ["a", "a"]}))


def test_a_field_that_is_new_below_free_ones_is_checked() -> None:
    proof = taught(proof_for(SCHEMA), an_object({"size": 1, "free": {"other": 1}}))
    assert not proves(proof, an_object({"size": 1, "free": {"other": 1, "a": 1}}))
    assert proves(proof, an_object({"size": 1, "free": {"other": 1, "a": "1"}}))


@pytest.mark.parametrize("kept", [{"x": 1.0}, {"x": {"y": [1e20]}}])
def test_whole_floats_in_free_contents_are_not_proved(kept: Any) -> None:
    proof = proof_for(SCHEMA)
    assert not proves(proof, an_object({"size": 1, "free": kept}))
    taught(proof, an_object({"size": 1, "free": {"x": 1}}))
    assert not proves(proof, an_object({"size": 1, "free": kept}))
    assert proves(proof, an_object({"size": 1, "free": {"x": {"y": [1.5]}}}))


SCALARS: list[tuple[dict[str, Any], Any, list[Any]]] = [
    ({"type": "string", "pattern": "^a+$"}, "aa", ["b", "", 1, None]),
    ({"type": "string", "pattern": "^(a"}, None, ["a"]),
    ({"type": "string", "format": "date"}, "2026-01-01", ["x"]),
    ({"type": "string", "format": "unknown"}, "x", [1]),
    ({"type": "string", "enum": ["a", "bcd"], "maxLength": 2}, "a", ["bcd", "b"]),
    ({"type": "string", "enum": ["a", None], "nullable": True}, "a", ["b"]),
    ({"type": "string", "minLength": 2}, "ab", ["a"]),
    ({"type": "string", "maxLength": 1}, "\U0001f600", ["ab"]),
    ({"type": "integer"}, 2**62, [1.0, True, "1"]),
    ({"type": "integer", "format": "int32"}, 5, [2**31, -(2**31) - 1]),
    ({"type": "integer", "minimum": 1, "maximum": 3}, 1, [0, 4]),
    ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 2, [1]),
    ({"type": "integer", "multipleOf": 3}, 6, [4]),
    ({"type": "integer", "enum": [1, 2]}, 1, [3]),
    ({"type": "number", "minimum": 0.5}, 0.75, [0.25, 2.0, True]),
    ({"type": "boolean"}, True, [0, "true"]),
    ({"type": "boolean", "enum": [True]}, True, [False]),
    ({"x-kubernetes-int-or-string": True}, 1, [1.5, True, None]),
    ({"x-kubernetes-int-or-string": True, "maxLength": 2}, "ab", ["abc"]),
    ({"x-kubernetes-int-or-string": True, "pattern": "^1"}, "1Gi", ["Gi"]),
    ({"x-kubernetes-int-or-string": True, "minimum": 2}, 2, [1]),
    ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "string"}, {"type": "integer"}]}, 1, [1.5]),
    ({"x-kubernetes-int-or-string": True, "allOf": [{"maxLength": 2}]}, "a", ["abc"]),
    ({"type": "array", "items": TEXT, "uniqueItems": True}, ["a"], [["a", "a"], [1], "a"]),
    ({"type": "array", "items": TEXT, "minItems": 1, "maxItems": 2}, ["a"], [[], ["a"] * 3]),
    ({"type": "array", "items": {**TEXT, "nullable": True}}, ["a"], [[1], ["a", None]]),
    ({"type": "array", "items": {**TEXT, "pattern": "a"}}, ["a"], [["b"], ["a", "b"]]),
    ({"type": "object", "additionalProperties": {**TEXT, "pattern": "a"}}, {"k": "a"}, [{"k": "b"}, {"k": 1}]),
    ({"type": "object", "additionalProperties": TEXT, "minProperties": 1}, {"k": "a"}, [{}]),
    ({"type": "object", "properties": {"a": TEXT}, "maxProperties": 1}, {"a": "a"}, [{"a": 1}, {"b": "a"}]),
    ({"type": "object", "properties": {"a": TEXT}, "not": {"required": ["a"]}}, {}, [{"a": ""}]),
    ({"type": "object", "properties": {'a"b': TEXT, "c\\d": TEXT}}, {'a"b': "x"}, [{'a"b': 1}, {"x": ""}]),
    ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"a": {"b": None}}, [{"a": 1.0}, []]),
    ({"x-kubernetes-preserve-unknown-fields": True}, "x", [1.0, []]),
]


@pytest.mark.parametrize(("schema", "good", "bad"), SCALARS)
def test_a_form_says_what_the_walk_says(schema: dict[str, Any], good: Any, bad: list[Any]) -> None:
    openapi = of_spec(field=schema)
    walk = proof_of(Node(openapi), table(openapi))
    proof = proof_for(openapi)
    for value in bad:
        assert not proves(walk, an_object({"field": value}))
        assert not proves(proof, an_object({"field": value}))
    if good is not None:
        assert proves(walk, an_object({"field": good}))
        taught(proof, an_object({"field": good}))
        assert is_by_form(proof, an_object({"field": good}))
    for value in bad:
        assert not proves(proof, an_object({"field": value}))


def test_forms_of_random_schemas_say_what_the_walk_says() -> None:
    by_form = by_walk = 0
    for seed in range(200):
        pick = random.Random(seed)
        openapi = {"type": "object", "properties": {"spec": {**some_schema(pick, 3), "nullable": False}}}
        walk, proof = proof_of(Node(openapi), table(openapi)), proof_for(openapi)
        for _ in range(40):
            obj = an_object(some_value(pick, openapi["properties"]["spec"], odd=pick.choice((0.0, 0.0, 0.05))))
            text = orjson.dumps(obj)
            expected = proves(walk, obj)
            assert proves(proof, obj) == expected, (seed, text)
            assert orjson.dumps(obj) == text
            by_walk += expected
            by_form += expected and is_by_form(proof, obj)
    assert by_form > 0.8 * by_walk > 2000


def test_defaults_may_be_set_before_unknown_fields_are_removed() -> None:
    for seed in range(300):
        pick = random.Random(seed)
        openapi = {"type": "object", "properties": {"spec": {**some_schema(pick, 3), "nullable": False}}}
        schema = compile_schema(openapi)
        for _ in range(10):
            one = an_object(some_value(pick, openapi["properties"]["spec"], odd=pick.choice((0.0, 0.1, 0.3))))
            other = orjson.loads(orjson.dumps(one))
            unknown = schema.prune(one)
            schema.default(one)
            schema.default(other)
            assert schema.prune(other) == unknown, seed
            assert other == one, seed


def test_what_types_cannot_bound_is_left_to_the_walk() -> None:
    proof = taught(proof_for(of_spec(text={"type": "string", "maxLength": 2**70})), an_object({"text": "a"}))
    assert proves(proof, an_object({"text": "b"}))
    assert not proves(proof, an_object({"text": 1}))


def test_a_schema_with_many_fields_in_use_has_no_form() -> None:
    objects = {f"o{n}": {"type": "object", "properties": {"a": TEXT}} for n in range(MAX_OBJECTS)}
    proof = taught(proof_for(of_spec(**objects)), an_object({name: {"a": "b"} for name in objects}))
    assert not proof._learns
    texts = {f"t{n}": TEXT for n in range(MAX_FIELDS)}
    obj = an_object(dict.fromkeys(texts, "a"))
    proof = taught(proof_for(of_spec(**texts)), obj)
    assert not proof._learns
    assert proves(proof, obj)


def test_a_form_that_refuses_all_values_is_given_up() -> None:
    proof = proof_for(of_spec(size={"type": "integer", "maximum": 2**60}))
    assert taught(proof, an_object({"size": 1}))._form is not None
    for _ in range(MAX_FUTILE):
        assert proves(proof, an_object({"size": 2**55}))
    assert proof._form is None
    assert proves(proof, an_object({"size": 1}))


def test_forms_are_made_anew_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(learned, "form_of", lambda *given: made.append(1) or form_of(*given))
    objects = {f"o{n}": {"type": "object", "properties": {"a": TEXT}} for n in range(MAX_OBJECTS - 4)}
    proof = proof_for(of_spec(**objects))
    spec: dict[str, Any] = {}
    for name in objects:  # each object brings one more field
        spec[name] = {"a": "b"}
        assert proves(proof, an_object(spec))
    assert len(made) < 12
