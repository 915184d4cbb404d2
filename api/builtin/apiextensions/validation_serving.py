"""Printer columns, subresources and selectable fields of a definition.

Source: apiextensions-apiserver ``pkg/apis/apiextensions/validation``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubechronicle.api.builtin.apiextensions.where import Where
from kubechronicle.api.custom.rules.field_paths import FieldPathError, field_path
from kubechronicle.api.errors.field_errors import Cause, duplicate, invalid_value, required, too_many
from kubechronicle.api.values.objects import Object

COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS: Final = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
SELECTABLE_TYPES: Final = ("string", "boolean", "integer")
MAX_SELECTABLE: Final = 8


def columns(given: Sequence[Object], where: Where) -> Iterator[Cause]:
    """Check additional printer columns."""
    for index, column in enumerate(given):
        yield from _column(column, where.index(index))


def _column(column: Object, where: Where) -> Iterator[Cause]:
    if not column.get("name"):
        yield required(where.child("name"))
    kind, detail = column.get("type", ""), f"must be one of {','.join(COLUMN_TYPES)}"
    if not kind:
        yield required(where.child("type"), detail)
    elif kind not in COLUMN_TYPES:
        yield invalid_value(where.child("type"), kind, detail)
    shape = column.get("format", "")
    if shape and shape not in COLUMN_FORMATS:
        yield invalid_value(where.child("format"), shape, f"must be one of {','.join(COLUMN_FORMATS)}")
    path = column.get("jsonPath", "")
    if not path:
        yield required(where.child("JSONPath"))
    elif path[0] != ".":
        yield _not_simple(path, where.child("JSONPath"))


def _not_simple(path: str, where: Where) -> Cause:
    return invalid_value(where, path, "must be a simple json path starting with .")


def subresources(given: Object | None, where: Where) -> Iterator[Cause]:
    """Check the paths of a scale subresource."""
    scale = None if given is None else given.get("scale")
    if scale is None:
        return
    for name, below in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        at, path = where.child(f"scale.{name}"), scale.get(name, "")
        if not path:
            yield required(at)
        elif path[0] != ".":
            yield _not_simple(path, at)
        elif not path.startswith(f"{below}."):
            yield invalid_value(at, path, f"should be a json path under {below}")
    at, path = where.child("scale.labelSelectorPath"), scale.get("labelSelectorPath") or ""
    if path and path[0] != ".":
        yield _not_simple(path, at)
    elif path and not path.startswith((".spec.", ".status.")):
        yield invalid_value(at, path, "should be a json path under either .spec or .status")


def selectable_fields(given: Sequence[Object], schema: Object, where: Where, *, any_number: bool) -> Iterator[Cause]:
    """Check that fields exist in a schema, have a simple type, and differ. ``any_number``: more than 8 are allowed."""
    seen: set[str] = set()
    for index, each in enumerate(given):
        at, path = where.index(index).child("jsonPath"), each.get("jsonPath", "")
        if not path:
            yield required(at)
            continue
        try:
            name, found = field_path(path, schema, brackets=False)
        except FieldPathError as error:
            yield invalid_value(at, path, f"is an invalid path: {error}")
            continue
        if name.partition(".")[0].partition("[")[0] == "metadata":
            yield invalid_value(at, path, "must not point to fields in metadata")
        if found.get("type") not in SELECTABLE_TYPES:
            detail = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed."
            )
            yield invalid_value(at, path, detail)
        if name in seen:
            yield duplicate(at, path)
        seen.add(name)
    if len(seen) > MAX_SELECTABLE and not any_number:
        yield too_many(where, len(seen), MAX_SELECTABLE)
