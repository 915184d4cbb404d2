"""Uniqueness of the items of sets, and of the keys of maps (x-kubernetes-list-type).

After apiextensions-apiserver ``pkg/apiserver/schema/listtype``. Items are compared by hash, so the time is linear.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

import orjson

from kubechronicle.api.custom.schema.bounds import BoundedCauses
from kubechronicle.api.custom.schema.structure import CONTAINERS, SchemaNode, Where, child, index, key, path_text
from kubechronicle.api.custom.schema.texts import bad_value, go_value
from kubechronicle.api.errors.field_errors import Cause, duplicate, invalid_value

_ABSENT: Final = object()


def validate_lists(obj: dict[str, Any], root: SchemaNode) -> list[Cause]:
    """Return the repeated items of all sets and maps within an object."""
    causes = BoundedCauses()
    stack: list[tuple[Any, SchemaNode, Where]] = [(obj, root, None)] if root.deep_lists else []
    while stack and not causes.full:
        value, node, where = stack.pop()
        if value.__class__ is dict:
            fields, additional = node.list_fields, node.additional
            for name in fields if len(fields) < len(value) else value:
                below = fields.get(name)
                if below is not None and (item := value.get(name)).__class__ in CONTAINERS:
                    stack.append((item, below, child(where, name)))
            if additional is not None and additional.deep_lists:
                stack += [
                    (item, additional, key(where, name)) for name, item in value.items() if item.__class__ in CONTAINERS
                ]
            continue
        if node.list_type == "set":
            causes.extend(
                duplicate(path_text(index(where, position)), bad_value(value[position])) for position in repeated(value)
            )
        elif node.list_type == "map":
            causes.extend(_validate_map(value, node.map_keys, where))
        items = node.items
        if items is not None and items.deep_lists:
            stack += [
                (item, items, index(where, position))
                for position, item in enumerate(value)
                if item.__class__ in CONTAINERS
            ]
    return causes.found


def repeated(items: Sequence[Any]) -> list[int]:
    """Return the positions at which a value stands for the second time.

    >>> repeated([1, 2, 1, 1.0, True, 1])
    [2]
    """
    if len(items) <= 1 or differ(items):
        return []
    seen: dict[Hashable, bool] = {}
    found: list[int] = []
    for position, item in enumerate(items):
        identity = identity_of(item)
        reported = seen.get(identity)
        if reported is None:
            seen[identity] = False
        elif not reported:
            seen[identity] = True
            found.append(position)
    return found


def differ(items: Sequence[Any]) -> bool:
    """Return whether no two items are equal, 1 and True included; False if that is not certain."""
    try:
        return len(set(items)) == len(items)
    except TypeError:  # lists or objects
        return False


def identity_of(item: Any) -> Hashable:
    """Return a hashable value that equal items share. As in Go, 1 and 1.0 differ, but not within lists and objects."""
    if item.__class__ is str:
        return item
    if item.__class__ not in CONTAINERS:
        return (item.__class__, item)
    text = orjson.dumps(item, option=orjson.OPT_SORT_KEYS)
    return orjson.dumps(go_value(item)) if b".0" in text or b"e" in text else text


def _validate_map(items: list[Any], keys: Sequence[str], where: Where) -> Iterable[Cause]:
    for position, item in enumerate(items):
        if item is not None and item.__class__ is not dict:
            problem = "must be an object for an array of list-type map"
            return [invalid_value(path_text(index(where, position)), bad_value(item), problem)]
    if len(items) <= 1:
        return []
    if len(keys) == 1 and differ([None if item is None else item.get(keys[0]) for item in items]):
        return []
    found: list[dict[str, Any]] = [
        {} if item is None else {name: item[name] for name in keys if name in item} for item in items
    ]
    compared = [each.get(keys[0], _ABSENT) for each in found] if len(keys) == 1 else found
    return (duplicate(path_text(index(where, position)), go_value(found[position])) for position in repeated(compared))
