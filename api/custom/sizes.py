"""Sizes of the data that a schema allows: the basis of the worst-case costs of rules.

A schema without its own limit is bounded by the largest request, 3 MiB.
Source: k8s.io/apiserver ``pkg/cel/common/schemas.go``, ``pkg/cel/limits.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.api.cel.cost_estimate import Path, Sizes
from kubechronicle.api.cel.schemas import EMBEDDED, INT_OR_STRING, whole_resource
from kubechronicle.api.cel.syntax.escaping import escape

MOST_BYTES: Final = 3 * 1024 * 1024
"""The bytes of the largest request (``MaxRequestSizeBytes``)."""
_QUOTES: Final = 2
_LONGEST_TEXT: Final = MOST_BYTES - _QUOTES
_BYTES_OF_CHARACTER: Final = 4
_FORMATS: Final[Mapping[str, tuple[int, int]]] = {"duration": (3, 32), "date": (12, 12), "date-time": (21, 32)}
"""format -> (fewest, most) bytes in JSON."""
_SCALARS: Final[Mapping[str, int]] = {"boolean": 4, "number": 1, "integer": 1}
"""type -> the fewest bytes in JSON."""


class SizedSchema(NamedTuple):
    """The sizes of one value.

    ``least``: its fewest bytes in JSON.
    ``most``: its most characters, items or entries; 0 for other values.
    ``element``: a list's item or a map's value.
    ``fields``: an object's fields by their names in expressions.
    ``keyed``: the value is a map.
    """

    least: int
    most: int = 0
    element: SizedSchema | None = None
    fields: Mapping[str, SizedSchema] = {}
    keyed: bool = False


def sizes_of(schema: Mapping[str, Any], *, resource: bool = False) -> SizedSchema | None:
    """Return the sizes of a schema's values, None if expressions cannot name them.

    ``resource``: the schema is the root of a resource.
    """
    if schema.get(INT_OR_STRING):
        return SizedSchema(1, _LONGEST_TEXT if schema.get("maxLength") is None else _from_length(schema))
    if resource:
        schema = whole_resource(schema)
    kind = schema.get("type")
    if kind == "array":
        return _array(schema)
    if kind == "object":
        values = schema.get("additionalProperties")
        return _map(schema, values) if isinstance(values, Mapping) else _object(schema)
    if kind == "string":
        return _text(schema)
    return SizedSchema(_SCALARS[kind]) if isinstance(kind, str) and kind in _SCALARS else None


def _array(schema: Mapping[str, Any]) -> SizedSchema | None:
    items = schema.get("items")
    element = sizes_of(items, resource=bool(items.get(EMBEDDED))) if items else None
    if element is None:
        return None
    limit = schema.get("maxItems")
    return SizedSchema(2, (MOST_BYTES - 2) // (element.least + 1) if limit is None else max(limit, 0), element)


def _map(schema: Mapping[str, Any], values: Mapping[str, Any]) -> SizedSchema | None:
    element = sizes_of(values, resource=bool(values.get(EMBEDDED)))
    if element is None:
        return None
    limit = schema.get("maxProperties")
    return SizedSchema(
        2, (MOST_BYTES - 2) // (element.least + 6) if limit is None else max(limit, 0), element, keyed=True
    )


def _object(schema: Mapping[str, Any]) -> SizedSchema:
    required = frozenset(schema.get("required") or ())
    least, fields = 2, {}
    for name, own in (schema.get("properties") or {}).items():
        sized = sizes_of(own, resource=bool(own.get(EMBEDDED)))
        if sized is None:
            continue
        escaped = escape(name)
        if escaped is not None:
            fields[escaped] = sized
        if name in required and own.get("default") is None:
            least += len(name.encode()) + sized.least + 4
    return SizedSchema(least, 0, None, fields)


def _text(schema: Mapping[str, Any]) -> SizedSchema:
    form, limit = schema.get("format", ""), schema.get("maxLength")
    if form in _FORMATS:
        least, most = _FORMATS[form]
        return SizedSchema(least, most)
    if form == "byte":
        return SizedSchema(2, _LONGEST_TEXT if limit is None else max(limit, 0))
    if limit is not None:
        return SizedSchema(2, _from_length(schema))
    choices = schema.get("enum")
    if choices:
        return SizedSchema(2, max((len(each.encode()) for each in choices if isinstance(each, str)), default=0))
    return SizedSchema(2, _LONGEST_TEXT)


def _from_length(schema: Mapping[str, Any]) -> int:
    return max(int(schema["maxLength"]), 0) * _BYTES_OF_CHARACTER


_KEY: Final = SizedSchema(2)


def bounds(root: SizedSchema) -> Sizes:
    """Return the most characters, items or entries by path. The first step of a path is the variable."""

    def most(path: Path) -> int | None:
        at: SizedSchema | None = root
        for step in path[1:]:
            if at is None:
                return None
            if step in ("@items", "@values"):
                at = at.element
            elif step == "@keys":
                at = _KEY if at.keyed else None
            else:
                at = at.fields.get(step)
        return None if at is None else at.most

    return most


def times_in_a_request(sized: SizedSchema) -> int:
    """Return the number of such values that fit into the largest request."""
    return MOST_BYTES // (sized.least + 1)
