"""Selectable fields of custom resources, with the defaults of the present schema.

A field selector sees an object as it is read: an object that is older than its schema has the defaults that the schema
gained since. The defaults along the field's path are all that matters, so an object is not defaulted as a whole:

    spec: {default: {}}, spec.size: {default: "L"}      {}                      ->  "L"
                                                        {"spec": {"size": "S"}} ->  "S"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from kubechronicle.api.custom.version import CustomVersion
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors.selectable_fields import Getter, dotted
from kubechronicle.api.values.objects import ReadOnlyObject

NO_DEFAULT: Final = b""


class PathStep(NamedTuple):
    """One field of a path. ``default``: its JSON. ``nullable``: a null is not replaced by the default."""

    name: str
    default: bytes
    nullable: bool


class SelectableField(NamedTuple):
    """A field of all versions. ``steps``: its path in the stored version; () if no field of it has a default."""

    name: str
    steps: tuple[PathStep, ...]


def selectable_fields(types: Iterable[ResourceType]) -> frozenset[SelectableField]:
    """Return the selectable fields of all versions of a definition."""
    names = {name: rt.custom.storage for rt in types for name in rt.selectable_fields}
    if not names:
        return frozenset()
    storage: CustomVersion = next(iter(names.values()))
    openapi = storage.openapi
    return frozenset(SelectableField(name, _steps(openapi, name.split("."))) for name in names)


def getter(field: SelectableField) -> tuple[str, Getter]:
    """Return the name of a field, and the function that returns its value in a stored object."""
    name, get = dotted(field.name)
    if not field.steps:
        return name, get
    return name, lambda obj: get(_filled(obj, field.steps))


def _steps(openapi: Mapping[str, Any], path: Iterable[str]) -> tuple[PathStep, ...]:
    steps = []
    node: Any = openapi
    for name in path:
        node = (node.get("properties") or {}).get(name) or {}
        default = orjson.dumps(node["default"]) if node.get("default") is not None else NO_DEFAULT
        steps.append(PathStep(name, default, bool(node.get("nullable"))))
    return tuple(steps) if any(step.default for step in steps) else ()


def _filled(obj: ReadOnlyObject, steps: tuple[PathStep, ...]) -> ReadOnlyObject:
    """Return an object with the field at the end of the steps alone, or with as many of them as there are."""
    whole: dict[str, Any] = {}
    place, value = whole, obj
    for index, step in enumerate(steps):
        item = value.get(step.name)
        if step.default and item is None and (step.name not in value or not step.nullable):
            item = orjson.loads(step.default)
        if index + 1 == len(steps) or not isinstance(item, Mapping):
            place[step.name] = item
            break
        value, place[step.name] = item, {}
        place = place[step.name]
    return whole
