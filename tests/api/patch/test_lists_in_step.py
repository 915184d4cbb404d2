"""Large lists of alike items: the short cut of the merge gives what the plain algorithm gives."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import pytest

from kubechronicle.api.custom.version import object_type
from kubechronicle.api.managed_fields import field_sets
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.patch import structured_merge
from kubechronicle.api.schema.types import ObjectType

MANY = 6
TEXT = {"type": "string"}
ITEM = {
    "type": "object",
    "properties": {"name": TEXT, "port": {"type": "integer"}, "on": {"type": "boolean"}, "tags": {"type": "object"}},
    "x-kubernetes-preserve-unknown-fields": True,
}
KEYED = {"type": "array", "items": ITEM, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
SPEC = {
    "keyed": KEYED,
    "twice": {**KEYED, "x-kubernetes-list-map-keys": ["name", "port"]},
    "closed": {**KEYED, "items": {"type": "object", "properties": ITEM["properties"]}},
    "whole": {**KEYED, "items": {**ITEM, "x-kubernetes-map-type": "atomic"}},
    "texts": {**KEYED, "items": {"type": "object", "additionalProperties": TEXT}},
    "set": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
    "map": {"type": "object", "additionalProperties": TEXT},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
KIND: ObjectType = object_type({"type": "object", "properties": SPEC})
VALUES: tuple[Any, ...] = ("a", "", 7, True, 0.5, None, {}, [], {"x": "y"}, ["x"], "<&>", "é", "long" * 40)


def drawn_items(draw: random.Random) -> list[Any]:
    """Return items that are mostly alike: the keys are mostly unique, and few fields have unusual values."""
    names = draw.sample(["name", "port", "on", "tags", "more"], draw.randint(1, 4))
    odd = draw.choice((0.0, 0.02, 0.1))
    tags: Any = draw.choice(({}, {"x": "y"}))
    items: list[Any] = []
    for number in range(draw.randint(MANY - 1, MANY + 3)):
        usual = {"name": f"n{number}", "port": number, "on": False, "tags": tags, "more": "text"}
        item = {name: draw.choice(VALUES) if draw.random() < odd else usual[name] for name in names}
        if draw.random() < odd:
            item = draw.choice((dict(reversed(item.items())), {**item, "zone": "z"}, dict([*item.items()][1:])))
        items.append(draw.choice(VALUES) if draw.random() < odd else item)
    return items


def drawn_spec(draw: random.Random) -> dict[str, Any]:
    values: dict[str, Any] = {name: drawn_items(draw) for name in ("keyed", "twice", "closed", "whole", "texts")}
    for name in ("map", "free", "set"):
        odd = draw.choice((0.0, 0.02, 0.1))
        names = [f"{'k' * (200 if draw.random() < odd else 1)}{n}" for n in range(draw.randint(MANY - 1, MANY + 3))]
        pairs = {each: draw.choice(VALUES) if draw.random() < odd else "v" for each in names}
        values[name] = list(pairs) if name == "set" else pairs
    return {name: values[name] for name in draw.sample([*values], 2)}


def changed(draw: random.Random, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a spec with the same keys and other values, mostly of the same classes. It may lack a field."""
    found: dict[str, Any] = copy_object(spec)
    odd = draw.choice((0.0, 0.1, 0.5))
    dropped = draw.choice(("none", "port", "more"))
    for value in found.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                item.pop(dropped, None)
            for name in item if isinstance(item, dict) else ():
                if name != "name" and draw.random() < odd:
                    item[name] = draw.choice(VALUES)
                elif name != "name" and isinstance(item[name], str):
                    item[name] += "!"
    return found


def result_of(function: Any, *arguments: Any) -> Any:
    try:
        found = function(*arguments)
    except (field_sets.NoPathElement, TypeError, KeyError) as error:
        return type(error)
    return found if isinstance(found, bool) else (found, listed(found))


def listed(value: Any) -> Any:
    """Return a value whose equality depends on the order of keys, and on 1 or True."""
    if isinstance(value, dict):
        return [(name, listed(item)) for name, item in value.items()]
    return [listed(item) for item in value] if isinstance(value, list | tuple) else (type(value), value)


@pytest.mark.parametrize("seed", range(20))
def test_lists_are_merged_alike(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(20):
        live, applied = drawn_spec(draw), drawn_spec(draw)
        applied |= {name: value for name, value in changed(draw, live).items() if draw.random() < 0.7}
        found = result_of(structured_merge.merge, live, applied, KIND)
        with patch.object(structured_merge, "_in_step", return_value=False):
            assert result_of(structured_merge.merge, live, applied, KIND) == found
