"""CEL's types: of variables, fields, arguments and results.

``str()`` of a type is the text that cel-go's checker prints. Two types are equal if their kinds, names and parameters
are. The fields of an object type do not count, so that a schema may be recursive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kubechronicle.api.cel.syntax.escaping import RESERVED

MAX_TYPE_SIZE: Final = 512
"""Types in one type. Lists in lists reach half of it, but maps in maps are twice as large with each level: without a
bound, a text of 600 characters would have a type of a million."""

Fields = Mapping[str, "Type | Field"] | Callable[[], Mapping[str, "Type | Field"]]
"""The fields of an object type, or a function that returns them at the first use."""


class Field(NamedTuple):
    """A field with another name in the data than in CEL (``__namespace__`` for ``namespace``).

    ``default``: the value of the absent field if ``has_default``; otherwise reading it fails with ``no such key``.
    """

    type: Type
    name: str = ""
    default: object = None
    has_default: bool = False


class Type:
    """A CEL type.

    ``kind``: one of the kinds of the constants below.
    ``name``: the name of the type at run time.
    ``read``: converts data to the CEL value whenever a field, element or entry of this type is read, for example a text
    to a Timestamp. None: the data holds CEL values already.
    ``open``: it contains type parameters.
    ``size``: the number of types it consists of; at most MAX_TYPE_SIZE, otherwise RecursionError.
    """

    __slots__ = ("_fields", "_hash", "kind", "name", "open", "parameters", "read", "size")

    def __init__(
        self,
        kind: str,
        name: str,
        parameters: tuple[Type, ...] = (),
        fields: Fields | None = None,
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        self.read = read
        self.kind = kind
        self.name = name
        self.parameters = parameters
        self._fields = fields
        self._hash = hash((kind, name, parameters))
        self.open: bool = kind == "param" or any(each.open for each in parameters)
        self.size: int = 1 + sum(each.size for each in parameters)
        if self.size > MAX_TYPE_SIZE:
            raise RecursionError("the type is too large")

    @property
    def fields(self) -> Mapping[str, Type | Field]:
        """The fields of an object type; empty for any other type."""
        if self._fields is None:
            return {}
        if not isinstance(self._fields, Mapping):
            self._fields = self._fields()
        return self._fields

    def field(self, name: str) -> Field | None:
        """Return the field with this name in CEL, or None. A reserved word may stand for its escaped form."""
        field = self.fields.get(name)
        if field is None and name in RESERVED:
            field = self.fields.get(f"__{name}__")
        if field is None:
            return None
        if isinstance(field, Type):
            return Field(field, name)
        return field if field.name else field._replace(name=name)

    def with_parameters(self, parameters: tuple[Type, ...]) -> Type:
        return Type(self.kind, self.name, parameters, self._fields, self.read)

    def reading(self, read: Callable[[Any], Any]) -> Type:
        """Return the same type with a function that converts its data to CEL values."""
        return Type(self.kind, self.name, self.parameters, self._fields, read)

    @property
    def is_dynamic(self) -> bool:
        return self.kind in ("dyn", "any", "param")

    @property
    def is_optional(self) -> bool:
        return self.kind == "opaque" and self.name == "optional_type"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Type):
            return NotImplemented
        return (
            self._hash == other._hash
            and self.kind == other.kind
            and self.name == other.name
            and self.parameters == other.parameters
        )

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        shown = _SHOWN.get(self.kind, self.name)
        if not self.parameters:
            return shown
        return f"{shown}({', '.join(map(str, self.parameters))})"

    def __repr__(self) -> str:
        return f"<Type {self}>"


_SHOWN: Final = {"any": "any", "timestamp": "timestamp", "duration": "duration", "null": "null", "error": "!error!"}
"""The kinds with another name in messages than at run time."""

DYN: Final = Type("dyn", "dyn")
ANY: Final = Type("any", "google.protobuf.Any")
NULL: Final = Type("null", "null_type")
BOOL: Final = Type("bool", "bool")
INT: Final = Type("int", "int")
UINT: Final = Type("uint", "uint")
DOUBLE: Final = Type("double", "double")
STRING: Final = Type("string", "string")
BYTES: Final = Type("bytes", "bytes")
TIMESTAMP: Final = Type("timestamp", "google.protobuf.Timestamp")
DURATION: Final = Type("duration", "google.protobuf.Duration")
TYPE: Final = Type("type", "type")
ERROR: Final = Type("error", "error")


def list_of(element: Type) -> Type:
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", "map", (key, value))


def type_of_type(of: Type) -> Type:
    """Return the type of a type's name: the identifier ``int`` has the type ``type(int)``."""
    return Type("type", "type", (of,))


def optional_of(value: Type) -> Type:
    return Type("opaque", "optional_type", (value,))


def unwrap_optional(of: Type) -> tuple[Type, bool]:
    """Return (type of the value, True) for an optional type, (the type, False) for any other."""
    return (of.parameters[0], True) if of.is_optional else (of, False)


def opaque(name: str, *parameters: Type) -> Type:
    """Return a type known by its name alone, such as ``net.IP``. Its values are Python objects with ``cel_type``."""
    return Type("opaque", name, parameters)


def object_type(name: str, fields: Fields) -> Type:
    """Return a type with fields. Its values are dicts as JSON has them."""
    return Type("struct", name, (), fields)


def param(name: str) -> Type:
    """Return a type parameter of an overload."""
    return Type("param", name)


LIST: Final = list_of(DYN)
MAP: Final = map_of(DYN, DYN)
