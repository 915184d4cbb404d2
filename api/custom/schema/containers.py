"""Keywords of objects and lists: properties, required fields, items, and their numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from kubechronicle.api.custom.schema.failures import Failures, bad_value, go_value
from kubechronicle.api.custom.schema.ratcheting import Correlated
from kubechronicle.api.custom.schema.structure import (
    CONTAINERS,
    NO_FIELDS,
    Schema,
    SchemaNode,
    Where,
    child,
    index,
    key,
    path_text,
)
from kubechronicle.api.custom.schema.tables import Check, Table, apply_ratcheted
from kubechronicle.api.errors.field_errors import MOST_CAUSES, BoundedCauses, Cause, duplicate, invalid_value

# -- list types --------------------------------------------------------------------------------------------------------
#
# Uniqueness of the items of sets, and of the keys of maps (x-kubernetes-list-type).
#
# After apiextensions-apiserver ``pkg/apiserver/schema/listtype``. Items are compared by hash, so the time is linear.


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


TYPE_FIELDS: Final = frozenset(("apiVersion", "kind"))
Fields = dict[str, tuple[Table, str]]


def object_check(table: Table) -> Check | None:
    """Return the check of an object's fields; None if the schema says nothing about them."""
    schema = table.schema
    fields: Fields = {
        name: (table.below(below), name if table.root else f".{name}")
        for name, below in (schema.get("properties") or NO_FIELDS).items()
    }
    additional = schema.get("additionalProperties")
    others = table.below(additional) if isinstance(additional, Mapping) else None
    required = tuple(schema.get("required") or ())
    return _fields_check(fields, others, required) if fields or required or others is not None else None


def size_check(schema: Schema) -> Check | None:
    """Return the check of the number of an object's fields, and of fields beside the properties if none may be."""
    fewest, most = schema.get("minProperties"), schema.get("maxProperties")
    closed, fields = schema.get("additionalProperties") is False, schema.get("properties") or NO_FIELDS
    if fewest is None and most is None and not closed:
        return None
    too_few = f"should have at least {fewest} properties"

    def check(value: dict[str, Any], where: Where, failures: Failures, old: Correlated | None) -> int:
        size = len(value)
        if fewest is not None and size < fewest:
            failures.invalid(where, size, too_few)
        if most is not None and size > most:
            failures.add("many", where, (most, "properties"), size)
        if closed:
            for name in value:
                if name not in fields:
                    failures.add("forbidden", where, name)
        return 0

    return check


def _fields_check(fields: Fields, others: Table | None, required: Sequence[str]) -> Check:
    get_field = fields.get
    needed = frozenset(required)

    def check(value: dict[str, Any], where: Where, failures: Failures, old: Correlated | None) -> int:
        count = 0
        for name, item in value.items():
            field = get_field(name)
            if field is not None:
                below, suffix = field
            elif others is not None:
                below, suffix = others, f".{name}"
            else:
                continue
            constant, inner = below[item.__class__]
            if inner is None:
                count += constant
            elif old is None or (correlated := _correlated(old, name, where)) is None:
                count += constant + inner(item, (where, suffix), failures, None)
            else:
                count += apply_ratcheted(below, (where, suffix), failures, correlated)
        if not needed <= value.keys():
            for name in required:
                if name not in value:
                    failures.add("required", where, name)
                    if len(failures) >= MOST_CAUSES:
                        break
        return count

    return check


def _correlated(old: Correlated, name: str, where: Where) -> Correlated | None:
    """Return the old value of a field. The type of the root is never tolerated: both objects were converted to it."""
    return None if where is None and name in TYPE_FIELDS else old.field(name)


def items_check(table: Table) -> Check | None:
    """Return the check of a list's items; None if the schema says nothing about them."""
    given = table.schema.get("items")
    if not isinstance(given, Mapping):
        return None
    items = table.below(given)

    def check(value: list[Any], where: Where, failures: Failures, old: Correlated | None) -> int:
        count = 0
        for position, item in enumerate(value):
            constant, inner = items[item.__class__]
            if inner is None:
                count += constant
            elif old is None or (correlated := old.item(position)) is None:
                count += constant + inner(item, (where, position), failures, None)
            else:
                count += apply_ratcheted(items, (where, position), failures, correlated)
        return count

    return check


def length_check(schema: Schema) -> Check | None:
    """Return the check of the number of a list's items, and that they differ; None if the schema says nothing of it."""
    fewest, most, unique = schema.get("minItems"), schema.get("maxItems"), bool(schema.get("uniqueItems"))
    if fewest is None and most is None and not unique:
        return None
    too_few = f"should have at least {fewest} items"

    def check(value: list[Any], where: Where, failures: Failures, old: Correlated | None) -> int:
        size = len(value)
        if fewest is not None and size < fewest:
            failures.invalid(where, size, too_few)
        if most is not None and size > most:
            failures.add("many", where, (most, "items"), size)
        if unique and len(set(map(identity_of, value))) < size:
            failures.invalid(where, "", "shouldn't contain duplicates")
        return 0

    return check
