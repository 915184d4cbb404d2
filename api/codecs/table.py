"""The table of protobuf messages: the fields of each message, and the message of each apiVersion and kind.

Lives here: the messages of the facts about types (api/kinds), as frozen records. Not here: bytes of the wire.

Types such as `time` and `quantity` (`values.py`) are messages on the wire, and single values in JSON. The name "" marks
an inlined struct: JSON has its fields among those of the outer one.

Invariant: the fields of a message are in ascending order of number, as Go writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from kubechronicle.api.kinds import reading
from kubechronicle.api.kinds.reading import LIST, MAP, OPTION_KINDS, POINTER, UNVERSIONED_KINDS, Declared, GoType

__all__ = ["SCALARS", "WireField", "WireMessage", "message_for", "message_named", "messages"]

# Wire types of scalars; every other type is length-delimited (2).
SCALARS = {"int32": 0, "int64": 0, "bool": 0, "double": 1}

# Go type -> the name of a type that values.py reads and writes.
_VALUES: Final[Mapping[str, str]] = {
    "meta.v1.Time": "time",
    "meta.v1.MicroTime": "microtime",
    "meta.v1.FieldsV1": "fieldsv1",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "intorstring",
    "runtime.RawExtension": "rawextension",
    "apiextensions.v1.JSON": "rawjson",
    "apiextensions.v1beta1.JSON": "rawjson",
    "float64": "double",
    "int": "int64",
}


@dataclass(frozen=True, slots=True)
class WireField:
    """One field: its JSON `name` ("" if inlined), its number, and its type in the Go struct."""

    name: str
    number: int
    type: str
    repeated: bool
    map: bool
    pointer: bool
    omitempty: bool
    omitzero: bool

    @property
    def wire_type(self) -> int:
        return 2 if self.map else SCALARS.get(self.type, 2)

    @property
    def tag(self) -> int:
        return self.number << 3 | self.wire_type


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message: `name` is "core/v1.Pod"."""

    name: str
    fields: tuple[WireField, ...]


def messages() -> list[str]:
    """Return the names of all messages."""
    return [_name(declared) for declared in reading.release().types() if _is_message(declared)]


@cache  # bounded by the table
def message_named(name: str) -> WireMessage:
    """Return the message of a name such as "core/v1.Pod". KeyError if there is none."""
    declared = reading.release().declared(name.replace("/", "."))
    if not declared.is_struct:
        raise KeyError(name)
    fields = (_field(field) for field in declared.fields if field.number)
    return WireMessage(name, tuple(sorted(fields, key=lambda field: field.number)))


def message_for(api_version: str, kind: str) -> str | None:
    """Return the name of the message of an apiVersion and kind, None if the kind has no protobuf form."""
    package = reading.release().group_versions.get(api_version)
    declared = None if package is None else package.types.get(kind)
    if declared is not None and (name := _message_of(declared)) is not None:
        return name
    if kind in OPTION_KINDS or (api_version == "v1" and kind in UNVERSIONED_KINDS):
        return f"meta/v1.{kind}"
    return None


@cache  # bounded by the table
def _message_of(declared: Declared) -> str | None:
    return _name(declared) if _is_message(declared) else None


def _name(declared: Declared) -> str:
    return f"{declared.package.name.replace('.', '/')}.{declared.name}"


def _is_message(declared: Declared) -> bool:
    """Tell whether a type is a message with fields of its own: those without any number exist in JSON alone."""
    if not declared.is_struct or not declared.package.is_group_version or "decodes" in declared.marks:
        return False
    return not declared.fields or any(field.number for field in declared.fields)


def _field(field: reading.KindField) -> WireField:
    kind, shapes = _wire_type(field.type)
    return WireField(
        name=field.name,
        number=field.number,
        type=kind,
        repeated=LIST in shapes,
        map=MAP in shapes,
        pointer=POINTER in shapes,
        omitempty=field.omitempty,
        omitzero=field.omitzero,
    )


def _wire_type(kind: GoType) -> tuple[str, frozenset[str]]:
    """Return (the name of the innermost type, the shapes around it)."""
    shapes: set[str] = set()
    while True:
        if kind.shape == LIST and kind.of is not None and kind.of.name == "uint8":
            return "bytes", frozenset(shapes)
        if kind.of is not None:
            shapes.add(kind.shape)
            kind = kind.of
        elif kind.name in _VALUES:
            return _VALUES[kind.name], frozenset(shapes)
        elif "." not in kind.name:
            return kind.name, frozenset(shapes)
        else:
            declared = reading.release().declared(kind.name)
            if declared.is_struct:
                return _name(declared), frozenset(shapes)
            if "message" in declared.marks:
                return "strings", frozenset(shapes)
            kind = declared.behind
