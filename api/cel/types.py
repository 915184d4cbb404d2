"""CEL's types: of variables, fields, arguments and results.

``str()`` of a type is the text that cel-go's checker prints. Two types are equal if their kinds, names and parameters
are. The fields of an object type do not count, so that a schema may be recursive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubechronicle.api.cel.errors import no_such_overload
from kubechronicle.api.cel.syntax.escaping import RESERVED

MAX_TYPE_SIZE: Final = 512
"""Types in one type. Lists in lists reach half of it, but maps in maps are twice as large with each level: without a
bound, a text of 600 characters would have a type of a million."""

Fields = Mapping[str, "CelType | CelField"] | Callable[[], Mapping[str, "CelType | CelField"]]
"""The fields of an object type, or a function that returns them at the first use."""


class CelField(NamedTuple):
    """A field with another name in the data than in CEL (``__namespace__`` for ``namespace``).

    ``default``: the value of the absent field if ``has_default``; otherwise reading it fails with ``no such key``.
    """

    type: CelType
    name: str = ""
    default: object = None
    has_default: bool = False


class CelType:
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
        parameters: tuple[CelType, ...] = (),
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
    def fields(self) -> Mapping[str, CelType | CelField]:
        """The fields of an object type; empty for any other type."""
        if self._fields is None:
            return {}
        if not isinstance(self._fields, Mapping):
            self._fields = self._fields()
        return self._fields

    def field(self, name: str) -> CelField | None:
        """Return the field with this name in CEL, or None. A reserved word may stand for its escaped form."""
        field = self.fields.get(name)
        if field is None and name in RESERVED:
            field = self.fields.get(f"__{name}__")
        if field is None:
            return None
        if isinstance(field, CelType):
            return CelField(field, name)
        return field if field.name else field._replace(name=name)

    def with_parameters(self, parameters: tuple[CelType, ...]) -> CelType:
        return CelType(self.kind, self.name, parameters, self._fields, self.read)

    def reading(self, read: Callable[[Any], Any]) -> CelType:
        """Return the same type with a function that converts its data to CEL values."""
        return CelType(self.kind, self.name, self.parameters, self._fields, read)

    @property
    def is_dynamic(self) -> bool:
        return self.kind in ("dyn", "any", "param")

    @property
    def is_optional(self) -> bool:
        return self.kind == "opaque" and self.name == "optional_type"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, CelType):
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

DYN: Final = CelType("dyn", "dyn")
ANY: Final = CelType("any", "google.protobuf.Any")
NULL: Final = CelType("null", "null_type")
BOOL: Final = CelType("bool", "bool")
INT: Final = CelType("int", "int")
UINT: Final = CelType("uint", "uint")
DOUBLE: Final = CelType("double", "double")
STRING: Final = CelType("string", "string")
BYTES: Final = CelType("bytes", "bytes")
TIMESTAMP: Final = CelType("timestamp", "google.protobuf.Timestamp")
DURATION: Final = CelType("duration", "google.protobuf.Duration")
TYPE: Final = CelType("type", "type")
ERROR: Final = CelType("error", "error")


def list_of(element: CelType) -> CelType:
    return CelType("list", "list", (element,))


def map_of(key: CelType, value: CelType) -> CelType:
    return CelType("map", "map", (key, value))


def type_of_type(of: CelType) -> CelType:
    """Return the type of a type's name: the identifier ``int`` has the type ``type(int)``."""
    return CelType("type", "type", (of,))


def optional_of(value: CelType) -> CelType:
    return CelType("opaque", "optional_type", (value,))


def unwrap_optional(of: CelType) -> tuple[CelType, bool]:
    """Return (type of the value, True) for an optional type, (the type, False) for any other."""
    return (of.parameters[0], True) if of.is_optional else (of, False)


def opaque(name: str, *parameters: CelType) -> CelType:
    """Return a type known by its name alone, such as ``net.IP``. Its values are Python objects with ``cel_type``."""
    return CelType("opaque", name, parameters)


def object_type(name: str, fields: Fields) -> CelType:
    """Return a type with fields. Its values are dicts as JSON has them."""
    return CelType("struct", name, (), fields)


def param(name: str) -> CelType:
    """Return a type parameter of an overload."""
    return CelType("param", name)


LIST: Final = list_of(DYN)
MAP: Final = map_of(DYN, DYN)


# -- overloads ---------------------------------------------------------------------------------------------------------
#
# Functions of an expression language: a name with its overloads.
#
# Function("startsWith", (Overload("starts_with_string", (STRING, STRING), BOOL, str.startswith, member=True),))


RuntimeCost = Callable[[Sequence[Any], Any], int]
"""(argument values, the receiver first; the result) -> cost of the call, which replaces the usual 1."""


class Overload(NamedTuple):
    """One signature of a function.

    ``id``: cel-go's overload id.
    ``args``: the argument types; a member function's receiver comes first.
    ``call``: takes the values as positional arguments; raises EvaluationError. The values have the declared types:
    the type of a dynamic value is checked before the call.
    ``cost``: the cost at run time; None: 1.
    ``weight``: units of cost that a call takes beyond its cost, by the time it takes here (allowance.py).
    """

    id: str
    args: tuple[CelType, ...]
    result: CelType
    call: Callable[..., Any]
    member: bool = False
    cost: RuntimeCost | None = None
    weight: int = 0


class Function(NamedTuple):
    """A function's name, such as ``startsWith``, ``optional.of`` or the operator ``_+_``, with its overloads."""

    name: str
    overloads: tuple[Overload, ...]


def planned(*_: Any) -> Any:
    """Stand in for the ``call`` of an overload that the planner evaluates itself."""
    raise no_such_overload()
