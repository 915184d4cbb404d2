"""Fields whose Go type is a named string, such as ``v1.ServiceType``.

Field errors print a bad value by its type: ``%q`` for a plain string, JSON for any other type (``field.Error`` of
k8s.io/apimachinery). The two differ in characters that one of them escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kubechronicle.api.errors.field_errors import Cause
from kubechronicle.api.schema.types import ListType, MapType, ObjectType, Scalar, Type

_STEP: Final = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
_INDEX: Final = re.compile(r"\[[^\]]*\]")
_PLAIN: Final = frozenset(("string", "*string"))

_CONVERTED: Final = (
    "spec.scope",
    "spec.conversion.strategy",
    "podFailurePolicy.rules.onPodConditions.type",
    "spec.readinessGates.conditionType",
)
"""Ends of fields that the validation converts to plain strings first, without indices."""

_PARTS: Final = (".resizePolicy", ".os")
"""Ends of fields of structures, of which errors show a text of a named type."""

_RENAMED: Final = (
    ("metadata.taints[", "spec.taints["),
    ("spec.validation.openAPIV3Schema.", "spec.versions[0].schema.openAPIV3Schema."),
)
"""Beginnings of fields as errors name them, and their places."""


def print_by_type(causes: Iterable[Cause], kind: ObjectType) -> None:
    """Let the causes print the texts of named types as JSON. ``kind``: the type of the object."""
    for cause in causes:
        text = cause.unusual_text()
        if text is not None and is_named(kind, cause.field, text):
            cause.print_as_json()


def is_named(kind: ObjectType, field: str, text: str = "") -> bool:
    """Return whether a text at a field has a named type. It may be an item of the field, or a resource as its key."""
    for shown, place in _RENAMED:
        if field.startswith(shown):
            field = place + field.removeprefix(shown)
    found: Type | None = kind
    for step in _STEP.finditer(field):
        if isinstance(found, MapType) and found.go_type == "v1.ResourceList" and field.endswith(f"[{text}]"):
            return True
        found = _below(found, step[1])
    if isinstance(found, ListType):
        found = found.item
    if isinstance(found, ObjectType):
        return _INDEX.sub("", field).endswith(_PARTS)
    if not isinstance(found, Scalar) or found.kind != "string" or found.go_type in _PLAIN:
        return False
    return not _INDEX.sub("", field).endswith(_CONVERTED)


def _below(kind: Type | None, name: str | None) -> Type | None:
    """Return the type of a named field, or of an item or value if the name is None. Some fields lack the index."""
    if isinstance(kind, ListType):
        return kind.item if name is None else _below(kind.item, name)
    if isinstance(kind, MapType):
        return kind.value if name is None else None
    if isinstance(kind, ObjectType) and name is not None:
        field = kind.fields.get(name)
        return None if field is None else field.type
    return None
