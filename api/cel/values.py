"""CEL's values in Python.

| CEL | Python |
|---|---|
| int, uint | int (64 bits, overflow is an error), `UInt` |
| double, string, bytes, bool, null | float, str, bytes, bool, None |
| list, map | list or tuple, dict |
| timestamp, duration | `Timestamp`, `Duration` (whole nanoseconds) |
| type, optional | `TypeValue`, `OptionalValue` |
| object | a dict as JSON has it; an `ObjectValue` if an expression constructed it |
| opaque | any object with the attribute ``cel_type``, comparable with ``==`` |

Python's True equals 1 and has the same hash. So compare values of unknown type with `equal` (equality.py), never with
``==``, and get the type of a value from `type_name`, never from ``isinstance(value, int)`` alone.
"""

from __future__ import annotations

from functools import total_ordering
from typing import Any, Final

from kubechronicle.api.cel.types import CelType

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1

NANOS: Final = 1_000_000_000
TIMESTAMP_MIN: Final = -62_135_596_800 * NANOS
"""0001-01-01T00:00:00Z"""
TIMESTAMP_MAX: Final = 253_402_300_799 * NANOS + 999_999_999
"""9999-12-31T23:59:59.999999999Z"""


class UInt(int):
    """A CEL uint: 0 to 2**64-1. The caller checks the range."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


@total_ordering
class Timestamp:
    """A point in time: ``nanoseconds`` since 1970-01-01T00:00:00Z, between the years 1 and 9999."""

    __slots__ = ("nanoseconds",)

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanoseconds == other.nanoseconds

    def __lt__(self, other: Timestamp) -> bool:
        return self.nanoseconds < other.nanoseconds

    def __hash__(self) -> int:
        return hash(("timestamp", self.nanoseconds))

    def __repr__(self) -> str:
        return f"Timestamp({self.nanoseconds})"


@total_ordering
class Duration:
    """A length of time in ``nanoseconds``: 64 bits, may be negative."""

    __slots__ = ("nanoseconds",)

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanoseconds == other.nanoseconds

    def __lt__(self, other: Duration) -> bool:
        return self.nanoseconds < other.nanoseconds

    def __hash__(self) -> int:
        return hash(("duration", self.nanoseconds))

    def __repr__(self) -> str:
        return f"Duration({self.nanoseconds})"


class TypeValue:
    """A type as a value, the result of ``type(x)``. Equal by name: ``type([1]) == type(['a']) == list``."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeValue) and self.name == other.name

    def __hash__(self) -> int:
        return hash(("type", self.name))

    def __repr__(self) -> str:
        return self.name


class OptionalValue:
    """``optional.of(value)`` or `NONE`."""

    __slots__ = ("has_value", "value")

    def __init__(self, value: Any, has_value: bool = True) -> None:
        self.value = value
        self.has_value = has_value

    def __repr__(self) -> str:
        return f"optional.of({self.value!r})" if self.has_value else "optional.none()"


NONE: Final = OptionalValue(None, has_value=False)


class ObjectValue(dict[str, Any]):
    """An object that an expression constructed: its fields and its type."""

    __slots__ = ("cel_type",)

    def __init__(self, cel_type: CelType, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self.cel_type = cel_type


_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    tuple: "list",
    dict: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    TypeValue: "type",
    OptionalValue: "optional_type",
}
PLAIN: Final = frozenset(_NAMES)
"""Python types with values of one CEL type only."""
_BASES: Final = ((str, "string"), (int, "int"), (float, "double"), (dict, "map"), (list, "list"), (tuple, "list"))


def type_name(value: Any) -> str:
    """Return the name of a value's type as CEL's ``type()`` gives it: ``int``, ``map``, ``net.IP``…"""
    name = _NAMES.get(type(value))
    if name is not None:
        return name
    cel_type = getattr(value, "cel_type", None)
    if cel_type is not None:
        return str(cel_type.name)
    for base, name in _BASES:
        if isinstance(value, base):
            return name
    return type(value).__name__
