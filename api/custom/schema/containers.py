"""Keywords of objects and lists: properties, required fields, items, and their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.custom.schema.failures import Failures
from kubechronicle.api.custom.schema.list_types import identity_of
from kubechronicle.api.custom.schema.ratcheting import Correlated
from kubechronicle.api.custom.schema.structure import NO_FIELDS, Schema, Where
from kubechronicle.api.custom.schema.tables import Check, Table, apply_ratcheted
from kubechronicle.api.errors.field_errors import MOST_CAUSES

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
