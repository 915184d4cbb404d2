"""Selectable fields of custom resources with the defaults of the present schema."""

from __future__ import annotations

from typing import Any

import pytest
from custom.definitions import definition, established, version

from kubechronicle.api.custom.served import all_types, getter, selectable_fields

TEXT: dict[str, Any] = {"type": "string"}


def value_in(obj: dict[str, Any], spec: dict[str, Any], path: str = "spec.size") -> str:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    one = version(schema=schema, selectableFields=[{"jsonPath": f".{path}"}])
    (field,) = selectable_fields(all_types(established(definition(one))))
    name, get = getter(field)
    assert name == path
    return get(obj)


@pytest.mark.parametrize(
    ("obj", "spec", "size", "value"),
    [
        ({}, {}, {}, ""),
        ({}, {}, {"default": "L"}, ""),
        ({}, {"default": {}}, {"default": "L"}, "L"),
        ({}, {"default": {"size": "M"}}, {"default": "L"}, "M"),
        ({"spec": {}}, {}, {"default": "L"}, "L"),
        ({"spec": {"size": "S"}}, {}, {"default": "L"}, "S"),
        ({"spec": {"size": None}}, {}, {"default": "L"}, "L"),
        ({"spec": {"size": None}}, {}, {"default": "L", "nullable": True}, ""),
        ({"spec": 5}, {}, {"default": "L"}, ""),
        ({"spec": {}}, {}, {"type": "boolean", "default": True}, "true"),
        ({"spec": {}}, {}, {"type": "integer", "default": 0}, "0"),
    ],
)
def test_defaults_along_the_path(obj: dict[str, Any], spec: dict[str, Any], size: dict[str, Any], value: str) -> None:
    assert value_in(obj, {"type": "object", "properties": {"size": {**TEXT, **size}}, **spec}) == value


def test_fields_of_all_versions() -> None:
    both = [
        version(selectableFields=[{"jsonPath": ".spec.a"}]),
        version("v1beta1", selectableFields=[{"jsonPath": ".spec.b"}]),
    ]
    fields = selectable_fields(all_types(established(definition(*both))))
    assert sorted(field.name for field in fields) == ["spec.a", "spec.b"]
    assert selectable_fields(()) == frozenset()
