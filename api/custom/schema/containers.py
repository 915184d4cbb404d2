"""Keywords of objects and lists: properties, required fields, items, and their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.custom.schema.failures import Failures
from kubechronicle.api.custom.schema.list_types import identity_of
from kubechronicle.api.custom.schema.ratcheting import Correlated
from kubechronicle.api.custom.schema.structure import NO_FIELDS, Where
from kubechronicle.api.custom.schema.tables import Check, Table, apply, apply_ratcheted

TYPE_FIELDS: Final = frozenset(("apiVersion", "kind"))
Fields = dict[str, tuple[Table, str]]


def object_check(table: Table) -> Check | None:
    """Return the check of an object's fields; None if the schema says nothing about them."""
    schema = table.schema
    fields: Fields = {
        name: (table.below(below), name if table.root else f".{name}")
        for name, below in (schema.get("properties") or NO_FIELDS).items()
    }
    required = tuple(schema.get("required") or ())
    fewest, most = schema.get("minProperties"), schema.get("maxProperties")
    additional = schema.get("additionalProperties")
    others = table.below(additional) if isinstance(additional, Mapping) else None
    closed = additional is False
    get_field = fields.get

    def check(value: dict[str, Any], where: Where, failures: Failures, old: Correlated | None) -> int:
        count = 0
        if old is not None:
            count += _ratcheted_fields(value, where, failures, old, fields, others)
        else:
            for name, item in value.items():
                field = get_field(name)
                if field is not None:
                    below, suffix = field
                elif others is not None:
                    below, suffix = others, f".{name}"
                else:
                    continue
                constant, inner = below[item.__class__]
                count += constant
                if inner is not None:
                    count += inner(item, (where, suffix), failures, None)
        for name in required:
            if name not in value:
                failures.required(where, name)
        return count

    def check_all(value: dict[str, Any], where: Where, failures: Failures, old: Correlated | None) -> int:
        size = len(value)
        if fewest is not None and size < fewest:
            failures.invalid(where, size, f"should have at least {fewest} properties")
        if most is not None and size > most:
            failures.too_many(where, size, most, "properties")
        if closed:
            for name in value:
                if name not in fields:
                    failures.forbidden_property(where, name)
        return check(value, where, failures, old)

    if fewest is not None or most is not None or closed:
        return check_all
    return check if fields or required or others is not None else None


def _ratcheted_fields(
    value: dict[str, Any], where: Where, failures: Failures, old: Correlated, fields: Fields, others: Table | None
) -> int:
    count = 0
    for name, item in value.items():
        field = fields.get(name)
        if field is not None:
            below, suffix = field
        elif others is not None:
            below, suffix = others, f".{name}"
        else:
            continue
        # The type of the object as stored is not visible: both are in the version of the request.
        correlated = None if where is None and name in TYPE_FIELDS else old.field(name)
        if correlated is None:
            count += apply(below, item, (where, suffix), failures)
        else:
            count += apply_ratcheted(below, (where, suffix), failures, correlated)
    return count


def list_check(table: Table) -> Check | None:
    """Return the check of a list's items; None if the schema says nothing about them."""
    schema = table.schema
    given = schema.get("items")
    items = table.below(given) if isinstance(given, Mapping) else None
    fewest, most, unique = schema.get("minItems"), schema.get("maxItems"), bool(schema.get("uniqueItems"))
    if items is None and fewest is None and most is None and not unique:
        return None

    def check(value: list[Any], where: Where, failures: Failures, old: Correlated | None) -> int:
        count = 0
        if items is not None:
            if old is not None:
                count += _ratcheted_items(value, where, failures, old, items)
            else:
                for position, item in enumerate(value):
                    constant, inner = items[item.__class__]
                    count += constant
                    if inner is not None:
                        count += inner(item, (where, position), failures, None)
        size = len(value)
        if fewest is not None and size < fewest:
            failures.invalid(where, size, f"should have at least {fewest} items")
        if most is not None and size > most:
            failures.too_many(where, size, most, "items")
        if unique and len(set(map(identity_of, value))) < size:
            failures.invalid(where, "", "shouldn't contain duplicates")
        return count

    return check


def _ratcheted_items(value: list[Any], where: Where, failures: Failures, old: Correlated, items: Table) -> int:
    count = 0
    for position, item in enumerate(value):
        correlated = old.item(position)
        if correlated is None:
            count += apply(items, item, (where, position), failures)
        else:
            count += apply_ratcheted(items, (where, position), failures, correlated)
    return count
