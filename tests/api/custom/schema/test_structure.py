"""Defaults, pruning, and the metadata of embedded resources."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.custom.schema.compiled import CompiledSchema, compile_schema
from kubechronicle.api.custom.schema.defaults import TooManyDefaultsError
from kubechronicle.api.custom.schema.embedded import MalformedError

TEXT: dict[str, Any] = {"type": "string"}
EMBEDDED: dict[str, Any] = {"type": "object", "x-kubernetes-embedded-resource": True}
PRESERVE: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def of(**properties: Any) -> CompiledSchema:
    return compile_schema({"type": "object", "properties": properties})


def defaulted(schema: CompiledSchema, **fields: Any) -> dict[str, Any]:
    schema.default(fields)
    return fields


def test_defaults_fill_absent_fields_and_forbidden_nulls() -> None:
    inner = {"type": "object", "properties": {"b": TEXT | {"default": "x"}}}
    schema = of(a=inner | {"default": {}}, c=TEXT | {"default": "y", "nullable": True}, d=inner)
    assert defaulted(schema) == {"a": {"b": "x"}, "c": "y"}
    assert defaulted(schema, a=None, c=None, d={"b": None}) == {"a": {"b": "x"}, "c": None, "d": {"b": "x"}}


def test_a_default_is_copied_each_time() -> None:
    schema = of(a={"type": "array", "items": TEXT, "default": ["x"]})
    first = defaulted(schema)
    first["a"].append("y")
    assert defaulted(schema) == {"a": ["x"]}


def test_nulls_in_lists_and_maps_get_defaults() -> None:
    schema = of(
        a={"type": "array", "items": TEXT | {"default": "x"}},
        m={"type": "object", "additionalProperties": TEXT | {"default": "y"}},
    )
    assert defaulted(schema, a=[None, "b"], m={"k": None}) == {"a": ["x", "b"], "m": {"k": "y"}}


def test_unknown_fields_of_a_default_are_removed() -> None:
    schema = of(a={"type": "object", "properties": {"b": TEXT}, "default": {"b": "x", "c": 1}})
    assert defaulted(schema) == {"a": {"b": "x"}}


def test_defaults_do_not_make_an_object_of_any_size() -> None:
    item = {"type": "object", "properties": {f"f{number}": TEXT | {"default": ""} for number in range(1000)}}
    with pytest.raises(TooManyDefaultsError):
        defaulted(of(a={"type": "array", "items": item}), a=[{} for _ in range(1000)])


@pytest.mark.parametrize(
    ("schema", "value", "paths", "left"),
    [
        (TEXT, {"b": 1}, ["a.b"], {}),
        ({"type": "array", "items": {"type": "object"}}, [{}, {"c": {"d": 1}}], ["a[1].c"], [{}, {}]),
        (PRESERVE, {"b": {"c": 1}}, [], {"b": {"c": 1}}),
        (PRESERVE | {"properties": {"b": {"type": "object"}}}, {"b": {"c": 1}, "d": 1}, ["a.b.c"], {"b": {}, "d": 1}),
        ({"type": "object", "additionalProperties": {"type": "object"}}, {"k.l": {"c": 1}}, ["a.k.l.c"], {"k.l": {}}),
        ({"type": "object", "additionalProperties": True}, {"k": {"c": 1}, "l": 1}, ["a.k.c"], {"k": {}, "l": 1}),
        (EMBEDDED, {"kind": "X", "metadata": {"name": "n"}, "b": 1}, ["a.b"], {"kind": "X", "metadata": {"name": "n"}}),
        ({"type": "object", "properties": {"b": TEXT}}, {"b": None, "c": None}, ["a.c"], {}),
        ({"type": "object", "properties": {"b": TEXT | {"nullable": True}}}, {"b": None}, [], {"b": None}),
    ],
)
def test_unknown_fields_and_forbidden_nulls_are_removed(
    schema: dict[str, Any], value: Any, paths: list[str], left: Any
) -> None:
    obj = {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "a": value}
    assert of(a=schema).prune(obj) == paths
    assert obj == {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}, "a": left}


def test_a_definition_may_preserve_all_unknown_fields() -> None:
    assert compile_schema({}, preserve_unknown=True).prune({"a": {"b": None}}) == []


def test_paths_of_unknown_fields_are_bounded() -> None:
    key = "k" * 500_000
    schema = of(a={"type": "object", "additionalProperties": {"type": "array", "items": {"type": "object"}}})
    assert len(schema.prune({"a": {key: [{"b": 1} for _ in range(1000)]}})) == 3


def test_metadata_of_embedded_resources_is_brought_into_form() -> None:
    obj = {"a": {"apiVersion": "v1", "kind": "K", "metadata": {"name": None, "labels": {"a": "b"}, "x": 1}}}
    assert of(a=EMBEDDED).coerce(obj) == ["a.metadata.x"]
    assert obj["a"]["metadata"] == {"labels": {"a": "b"}}


def with_metadata(**metadata: Any) -> dict[str, Any]:
    return EMBEDDED | {"properties": {"metadata": {"type": "object"} | metadata}}


@pytest.mark.parametrize(
    "embedded",
    [
        with_metadata(default={"name": "b", "x": 1}),
        with_metadata(properties={"name": TEXT | {"default": "b"}, "x": TEXT | {"default": "1"}}, default={}),
        EMBEDDED | {"default": {"metadata": {"name": "b", "x": 1}}},
    ],
)
@pytest.mark.parametrize(
    ("place", "given"),
    [
        (lambda schema: schema, None),
        (lambda schema: {"type": "object", "properties": {"c": schema}, "default": {}}, "c"),
        (lambda schema: {"type": "array", "items": schema, "default": [None]}, 0),
        (lambda schema: {"type": "object", "additionalProperties": schema, "default": {"k": None}}, "k"),
    ],
)
def test_defaults_below_embedded_resources_have_only_known_metadata(embedded: Any, place: Any, given: Any) -> None:
    """Each default is pruned as kube-apiserver does it: at its place below the root."""
    if "default" not in embedded:
        embedded = embedded | {"default": {}}
    obj = defaulted(of(a=place(embedded)))
    found = obj["a"] if given is None else obj["a"][given]
    assert found == {"metadata": {"name": "b"}}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"kind": 5}, "a.kind: Invalid value: 5: must be a string"),
        (
            {"metadata": "x"},
            'a.metadata: Invalid value: "x": json: cannot unmarshal string into Go value of type v1.ObjectMeta',
        ),
        (
            {"metadata": {"labels": {"b": 1}}},
            'a.metadata: Invalid value: {"labels":{"b":1}}: json: cannot unmarshal number into Go struct field '
            "ObjectMeta.labels of type string",
        ),
    ],
)
def test_ill_typed_fields_of_embedded_resources_are_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(MalformedError) as raised:
        of(a=EMBEDDED).coerce({"a": fields})
    assert str(raised.value) == problem


def test_ill_typed_fields_of_stored_embedded_resources_are_dropped() -> None:
    obj = {"a": {"kind": 5, "metadata": {"name": "n", "labels": {"b": 1}}}}
    of(a=EMBEDDED).coerce(obj, drop_malformed=True)
    assert obj == {"a": {"metadata": {"name": "n"}}}
