"""Types of custom resources for field owners: the sets and errors that kube-apiserver v1.36 answered."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.custom.version import MAX_DEPTH, object_type
from kubechronicle.api.managed_fields import field_sets
from kubechronicle.api.managed_fields.managers import strip_untracked
from kubechronicle.api.patch import structured_merge, typed_readers, typed_values

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}
SPEC: dict[str, Any] = {
    "replicas": NUMBER,
    "size": {**NUMBER, "default": 3},
    "name": {**TEXT, "maxLength": 5},
    "flag": {"type": "boolean"},
    "port": {"x-kubernetes-int-or-string": True},
    "any": PRESERVE,
    "open": {
        "type": "object",
        **PRESERVE,
        "properties": {"a": TEXT, "in": {"type": "object", "properties": {"b": TEXT}}},
    },
    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
    "list": {"type": "array", "items": {"type": "object", "properties": {"n": TEXT, "m": NUMBER}}},
    "ports": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "proto"],
        "items": {
            "type": "object",
            "required": ["port"],
            "properties": {"port": NUMBER, "proto": {**TEXT, "default": "TCP"}, "n": TEXT},
        },
    },
    "labels": {"type": "object", "additionalProperties": TEXT},
    "struct": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"x": NUMBER, "y": NUMBER}},
    "tmpl": {"type": "object", "x-kubernetes-embedded-resource": True, **PRESERVE},
    "when": {**TEXT, "format": "date-time"},
    "raw": {"type": "object"},
    "mixed": {**PRESERVE, "properties": {"a": TEXT}},
}
KIND = object_type({"type": "object", "properties": {"spec": {"type": "object", "properties": SPEC}}})


def spec_fields(before: dict[str, Any] | None, after: dict[str, Any]) -> tuple[Any, Any]:
    old = {} if before is None else {"spec": before}
    changed, removed = field_sets.compare(old, {"apiVersion": "g/v1", "kind": "K", "spec": after}, KIND)
    return strip_untracked(changed).get("f:spec", {}), removed.get("f:spec", {})


def test_a_new_object_is_owned_by_its_schema() -> None:
    spec = {
        "any": {"q": {"r": [1]}},
        "list": [{"n": "z"}],
        "open": {"a": "1", "in": {"b": "1"}, "zz": {"y": 1}},
        "ports": [{"n": "one", "port": 1, "proto": "TCP"}],
        "raw": {},
        "struct": {"x": 1},
        "tags": ["x"],
        "tmpl": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"l": "m"}}, "spec": {"c": 1}},
    }
    assert spec_fields(None, spec)[0] == {
        ".": {},
        "f:any": {".": {}, "f:q": {".": {}, "f:r": {}}},
        "f:list": {},
        "f:open": {".": {}, "f:a": {}, "f:in": {".": {}, "f:b": {}}, "f:zz": {".": {}, "f:y": {}}},
        "f:ports": {".": {}, 'k:{"port":1,"proto":"TCP"}': {".": {}, "f:n": {}, "f:port": {}, "f:proto": {}}},
        "f:raw": {},
        "f:struct": {},
        "f:tags": {".": {}, 'v:"x"': {}},
        "f:tmpl": {
            ".": {},
            "f:apiVersion": {},
            "f:kind": {},
            "f:metadata": {".": {}, "f:labels": {".": {}, "f:l": {}}},
            "f:spec": {".": {}, "f:c": {}},
        },
    }


def test_an_applied_configuration_names_its_leaves() -> None:
    config = {
        "spec": {
            "ports": [{"port": 1, "n": "two"}, {"port": 2}],
            "struct": {"y": 2},
            "open": {"q": 1, "in": {"new": {"er": 1}}},
            "tmpl": {"metadata": {"labels": {"t": "u"}}, "spec": {"d": 1}},
            "raw": {"lost": 1},
        }
    }
    expected = {
        "f:open": {"f:in": {"f:new": {".": {}, "f:er": {}}}, "f:q": {}},
        "f:ports": {
            'k:{"port":1,"proto":"TCP"}': {".": {}, "f:n": {}, "f:port": {}},
            'k:{"port":2,"proto":"TCP"}': {".": {}, "f:port": {}},
        },
        "f:raw": {"f:lost": {}},
        "f:struct": {},
        "f:tmpl": {"f:metadata": {"f:labels": {"f:t": {}}}, "f:spec": {".": {}, "f:d": {}}},
    }
    assert typed_readers.read(config, KIND) == typed_values.field_set(config, KIND) == {"f:spec": expected}


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"bogus": 1}, ".spec.bogus: field not declared in schema"),
        ({"tags": ["a", "a"]}, '.spec.tags: duplicate entries for key [="a"]'),
        (
            {"ports": [{"port": 1}, {"port": 1, "proto": "TCP"}]},
            '.spec.ports: duplicate entries for key [port=1,proto="TCP"]',
        ),
        ({"ports": [3]}, ".spec.ports: element 0: associative list with keys may not have non-map elements"),
        ({"size": "x"}, ".spec.size: expected numeric (int or float), got string"),
        ({"name": 3}, ".spec.name: expected string, got &value.valueUnstructured{Value:3}"),
        ({"flag": 1}, ".spec.flag: expected boolean, got &{1}"),
        ({"list": 3}, ".spec.list: expected list, got &{3}"),
        ({"labels": {"a": 1}}, ".spec.labels.a: expected string, got &value.valueUnstructured{Value:1}"),
        ({"when": {"a": 1}}, ".spec.when: expected any scalar, got &{map[a:1]}"),
        ({"tmpl": 3}, ".spec.tmpl: expected map, got &{3}"),
        ({"tmpl": {"kind": 4}}, ".spec.tmpl.kind: expected string, got &value.valueUnstructured{Value:4}"),
    ],
)
def test_errors_of_applies(spec: dict[str, Any], error: str) -> None:
    assert typed_readers.read({"spec": spec}, KIND) is None
    assert typed_values.explain(typed_values.validate({"spec": spec}, KIND)) == error


@pytest.mark.parametrize(
    "spec",
    [
        {"port": {"a": 1}},
        {"port": [1]},
        {"when": 3},
        {"size": None},
        {"ports": [{"n": "the default of one key is enough"}]},
        {"mixed": 3},
        {"mixed": {"a": "x", "b": [1]}},
    ],
)
def test_what_the_types_leave_to_validation(spec: dict[str, Any]) -> None:
    assert typed_readers.read({"spec": spec}, KIND) is not None
    assert typed_values.validate({"spec": spec}, KIND) == []


def test_stored_objects_may_repeat_items_but_not_have_other_types() -> None:
    assert typed_values.fits({"spec": {"tags": ["a", "a"]}}, KIND)
    assert not typed_values.fits({"spec": {"size": "x"}}, KIND)


def test_numbers_are_compared_by_value_and_truth_values_apart() -> None:
    assert spec_fields({"any": {"z": 1}}, {"any": {"z": 1.0}}) == ({}, {})
    assert spec_fields({"any": {"z": 1}}, {"any": {"z": True}}) == ({"f:any": {"f:z": {}}}, {})


def test_a_deduced_value_may_change_its_form() -> None:
    assert spec_fields({"any": {"x": {"y": 1}}}, {"any": 3}) == (
        {"f:any": {}},
        {"f:any": {"f:x": {".": {}, "f:y": {}}}},
    )
    assert spec_fields({"any": 3}, {"any": {"x": 1}}) == ({"f:any": {".": {}, "f:x": {}}}, {})


def test_undeclared_fields_of_open_objects_are_merged_one_by_one() -> None:
    live = {"spec": {"open": {"zz": {"y": 1}, "in": {"b": "1"}}}}
    config = {"spec": {"open": {"zz": {"x": 2}, "in": {"c": 3}}}}
    merged = structured_merge.merge(live, config, KIND)
    assert merged == {"spec": {"open": {"zz": {"y": 1, "x": 2}, "in": {"b": "1", "c": 3}}}}


def test_map_keys_without_defaults_are_named_in_the_order_of_the_schema() -> None:
    ports = {
        **SPEC["ports"],
        "x-kubernetes-list-map-keys": ["z", "a"],
        "items": {"type": "object", "properties": {"z": TEXT, "a": TEXT}},
    }
    kind = object_type({"type": "object", "properties": {"ports": ports}})
    assert typed_values.validate({"ports": [{}]}, kind) == [
        '.ports: element 0: associative list with keys has an element that omits all key fields ["z" "a"] '
        "(and doesn't have default values for any key fields)"
    ]


def test_a_version_without_a_schema_is_deduced() -> None:
    kind = object_type({})
    assert typed_readers.read({"a": {"b": [1]}}, kind) == {"f:a": {".": {}, "f:b": {}}}


def test_the_depth_of_types_is_bounded() -> None:
    schema: dict[str, Any] = dict(TEXT)
    for _ in range(MAX_DEPTH + 50):
        schema = {"type": "object", "properties": {"a": schema}}
    assert object_type(schema).fields["a"].type is not None
