"""Large lists and maps of alike items: every short cut gives what the plain algorithms give."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from kubechronicle.api.custom.version import object_type
from kubechronicle.api.managed_fields import columns, field_sets
from kubechronicle.api.managed_fields.columns import MANY, columns_of
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.patch import structured_merge
from kubechronicle.api.schema.types import ObjectType

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


@contextmanager
def plainly() -> Iterator[None]:
    """Let the algorithms look at items one by one."""
    with patch.multiple(field_sets, MANY=10**9):
        yield


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


@pytest.mark.parametrize("seed", range(40))
def test_short_cuts_give_the_same(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(10):
        spec = drawn_spec(draw)
        other = changed(draw, spec)
        calls: list[tuple[Any, ...]] = [
            (field_sets.everything, spec, KIND),
            (field_sets.everything, other, KIND),
            (field_sets.compare, spec, other, KIND),
        ]
        for function, *arguments in calls:
            quickly = [result_of(function, *copy_object(arguments[:-1]), KIND) for _ in range(2)]
            with plainly():
                assert quickly == [result_of(function, *arguments)] * 2


@pytest.mark.parametrize("seed", range(20))
def test_lists_are_merged_alike(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(20):
        live, applied = drawn_spec(draw), drawn_spec(draw)
        applied |= {name: value for name, value in changed(draw, live).items() if draw.random() < 0.7}
        found = result_of(structured_merge.merge, live, applied, KIND)
        with patch.object(structured_merge, "_in_step", return_value=False):
            assert result_of(structured_merge.merge, live, applied, KIND) == found


def test_columns_are_those_of_objects_with_the_same_fields() -> None:
    assert columns_of([{"a": 1, "b": 2}, {"a": 3, "b": 4}]) == (("a", "b"), [(1, 3), (2, 4)])
    assert columns_of([{"a": 1}, {"b": 2}]) is None
    assert columns_of([{"a": 1, "b": 2}, {"b": 1, "a": 2}]) is None
    assert columns_of([{"a": 1, "b": 2}, {"a": 1}, {"b": 2}]) is None
    assert columns_of([{"a": 1, "b": 2}, {"a": 1}, {"b": 2, "a": 3}]) is None
    assert columns_of([{"a": 1}, "a"]) is None
    assert columns_of([{}, {}]) == ((), [])


def test_lists_with_the_same_names_share_a_node() -> None:
    one, other = ([{"name": f"n{number}", "more": f"{word}{number}"} for number in range(9)] for word in "ab")
    nodes = [field_sets.everything({"keyed": items}, KIND)["f:keyed"] for items in (one, other)]
    assert nodes[0] is nodes[1]


def test_names_that_are_kept_are_short() -> None:
    assert not columns.are_short(("a", "b" * 129))
    assert not columns.are_short(("a", 1))
    assert columns.are_short(("a", "b" * 128))


def test_lists_with_many_or_long_names_are_not_kept() -> None:
    for names in (["n" * 129], [f"n{number}" for number in range(40)]):
        items = [{"name": f"k{number}", **dict.fromkeys(names, "v")} for number in range(MANY)]
        nodes = [field_sets.everything({"keyed": items}, KIND)["f:keyed"] for _ in range(2)]
        assert nodes[0] == nodes[1]
        assert nodes[0] is not nodes[1]
