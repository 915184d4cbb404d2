"""The standard library of every CEL environment: operators and functions, as one table of overloads.

The planner itself evaluates the logical operators, ``?:``, equality, selection and indexing; here are their types.
Source: cel-go ``common/stdlib/standard.go``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from kubechronicle.api.cel import cost_spans
from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.operations import arithmetic, conversions, times
from kubechronicle.api.cel.operations.equality import equal, has_key
from kubechronicle.api.cel.operations.patterns import PatternError, compiled
from kubechronicle.api.cel.syntax import macros
from kubechronicle.api.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    CelType,
    Function,
    Overload,
    list_of,
    map_of,
    param,
    planned,
    type_of_type,
)

A: Final = param("A")
B: Final = param("B")
LIST_A: Final = list_of(A)
MAP_AB: Final = map_of(A, B)

_Row = tuple[str, Sequence[CelType], CelType, Callable[..., Any]]


PARSING: Final = 20
"""The weight of functions that parse a text, which take 5 to 20 µs, and of the others of their libraries."""
_PARSED: Final = frozenset(
    {"string_to_bool", "string_to_double", "string_to_duration", "string_to_int64", "string_to_timestamp"}
)


def _function(name: str, *rows: _Row, member: bool = False) -> Function:
    return Function(
        name,
        tuple(
            Overload(
                overload,
                tuple(args),
                result,
                call,
                member=member,
                cost=cost_spans.BY_OVERLOAD.get(overload),
                weight=PARSING if overload in _PARSED or overload.endswith("_with_tz") else 0,
            )
            for overload, args, result, call in rows
        ),
    )


_SHORT: Final = {
    BOOL: "bool",
    INT: "int64",
    UINT: "uint64",
    DOUBLE: "double",
    STRING: "string",
    BYTES: "bytes",
    TIMESTAMP: "timestamp",
    DURATION: "duration",
}
_COMPARED: Final = (
    *((kind, kind) for kind in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)),
    *((first, second) for first in (INT, UINT, DOUBLE) for second in (INT, UINT, DOUBLE) if first != second),
)
_ORDER_NAMES: Final = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}


def _comparison(operator: str) -> Function:
    """Return a comparison operator with overloads such as less_int64, less_int64_double."""
    name = _ORDER_NAMES[operator]
    call = arithmetic.COMPARISONS[operator]
    rows = []
    for first, second in _COMPARED:
        tail = "" if first == second else f"_{_SHORT[second]}"
        rows.append((f"{name}_{_SHORT[first]}{tail}", (first, second), BOOL, call))
    return _function(operator, *rows)


def _in_list(value: Any, items: Sequence[Any]) -> bool:
    return any(equal(value, item) for item in items)


def _in_map(key: Any, mapping: dict[Any, Any]) -> bool:
    return has_key(mapping, key)


def matches(text: str, pattern: str) -> bool:
    try:
        return compiled(pattern).matches(text)
    except PatternError as error:
        raise EvaluationError(str(error)) from error


OPERATORS: Final = (
    _function("_?_:_", ("conditional", (BOOL, A, A), A, planned)),
    _function("_&&_", ("logical_and", (BOOL, BOOL), BOOL, planned)),
    _function("_||_", ("logical_or", (BOOL, BOOL), BOOL, planned)),
    _function("!_", ("logical_not", (BOOL,), BOOL, arithmetic.negate)),
    _function("@not_strictly_false", ("not_strictly_false", (BOOL,), BOOL, planned)),
    _function("_==_", ("equals", (A, A), BOOL, equal)),
    _function("_!=_", ("not_equals", (A, A), BOOL, lambda left, right: not equal(left, right))),
    _function(
        "_+_",
        ("add_bytes", (BYTES, BYTES), BYTES, arithmetic.add_text),
        ("add_double", (DOUBLE, DOUBLE), DOUBLE, operator.add),
        ("add_duration_duration", (DURATION, DURATION), DURATION, arithmetic.add_durations),
        ("add_duration_timestamp", (DURATION, TIMESTAMP), TIMESTAMP, arithmetic.add_timestamp),
        ("add_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, arithmetic.add_to_timestamp),
        ("add_int64", (INT, INT), INT, arithmetic.add_int),
        ("add_list", (LIST_A, LIST_A), LIST_A, arithmetic.add_list),
        ("add_string", (STRING, STRING), STRING, arithmetic.add_text),
        ("add_uint64", (UINT, UINT), UINT, arithmetic.add_uint),
    ),
    _function(
        "_/_",
        ("divide_double", (DOUBLE, DOUBLE), DOUBLE, arithmetic.divide_double),
        ("divide_int64", (INT, INT), INT, arithmetic.divide_int),
        ("divide_uint64", (UINT, UINT), UINT, arithmetic.divide_uint),
    ),
    _function(
        "_%_",
        ("modulo_int64", (INT, INT), INT, arithmetic.modulo_int),
        ("modulo_uint64", (UINT, UINT), UINT, arithmetic.modulo_uint),
    ),
    _function(
        "_*_",
        ("multiply_double", (DOUBLE, DOUBLE), DOUBLE, lambda left, right: left * right),
        ("multiply_int64", (INT, INT), INT, arithmetic.multiply_int),
        ("multiply_uint64", (UINT, UINT), UINT, arithmetic.multiply_uint),
    ),
    _function(
        "-_",
        ("negate_double", (DOUBLE,), DOUBLE, lambda number: -number),
        ("negate_int64", (INT,), INT, arithmetic.negate_int),
    ),
    _function(
        "_-_",
        ("subtract_double", (DOUBLE, DOUBLE), DOUBLE, lambda left, right: left - right),
        ("subtract_duration_duration", (DURATION, DURATION), DURATION, arithmetic.subtract_durations),
        ("subtract_int64", (INT, INT), INT, arithmetic.subtract_int),
        ("subtract_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, arithmetic.subtract_from_timestamp),
        ("subtract_timestamp_timestamp", (TIMESTAMP, TIMESTAMP), DURATION, arithmetic.between_timestamps),
        ("subtract_uint64", (UINT, UINT), UINT, arithmetic.subtract_uint),
    ),
    *(_comparison(operator) for operator in _ORDER_NAMES),
    _function("_[_]", ("index_list", (LIST_A, INT), A, planned), ("index_map", (MAP_AB, A), B, planned)),
    _function("@in", ("in_list", (A, LIST_A), BOOL, _in_list), ("in_map", (A, MAP_AB), BOOL, _in_map)),
)

_SIZED: Final = ((BYTES, "bytes"), (LIST_A, "list"), (MAP_AB, "map"), (STRING, "string"))

CONVERSIONS: Final = (
    _function("type", ("type", (A,), type_of_type(A), conversions.to_type)),
    _function("dyn", ("to_dyn", (A,), DYN, conversions.identity)),
    _function(
        "bool",
        ("bool_to_bool", (BOOL,), BOOL, conversions.identity),
        ("string_to_bool", (STRING,), BOOL, conversions.string_to_bool),
    ),
    _function(
        "bytes",
        ("bytes_to_bytes", (BYTES,), BYTES, conversions.identity),
        ("string_to_bytes", (STRING,), BYTES, conversions.string_to_bytes),
    ),
    _function(
        "double",
        ("double_to_double", (DOUBLE,), DOUBLE, conversions.identity),
        ("int64_to_double", (INT,), DOUBLE, float),
        ("string_to_double", (STRING,), DOUBLE, conversions.string_to_double),
        ("uint64_to_double", (UINT,), DOUBLE, float),
    ),
    _function(
        "duration",
        ("duration_to_duration", (DURATION,), DURATION, conversions.identity),
        ("string_to_duration", (STRING,), DURATION, conversions.string_to_duration),
    ),
    _function(
        "int",
        ("int64_to_int64", (INT,), INT, conversions.identity),
        ("double_to_int64", (DOUBLE,), INT, conversions.double_to_int),
        ("duration_to_int64", (DURATION,), INT, conversions.duration_to_int),
        ("string_to_int64", (STRING,), INT, conversions.string_to_int),
        ("timestamp_to_int64", (TIMESTAMP,), INT, conversions.timestamp_to_int),
        ("uint64_to_int64", (UINT,), INT, conversions.uint_to_int),
    ),
    _function(
        "string",
        ("string_to_string", (STRING,), STRING, conversions.identity),
        ("bool_to_string", (BOOL,), STRING, conversions.bool_to_string),
        ("bytes_to_string", (BYTES,), STRING, conversions.bytes_to_string),
        ("double_to_string", (DOUBLE,), STRING, conversions.double_to_string),
        ("duration_to_string", (DURATION,), STRING, times.format_duration),
        ("int64_to_string", (INT,), STRING, conversions.int_to_string),
        ("timestamp_to_string", (TIMESTAMP,), STRING, times.format_timestamp),
        ("uint64_to_string", (UINT,), STRING, conversions.int_to_string),
    ),
    _function(
        "timestamp",
        ("timestamp_to_timestamp", (TIMESTAMP,), TIMESTAMP, conversions.identity),
        ("int64_to_timestamp", (INT,), TIMESTAMP, conversions.int_to_timestamp),
        ("string_to_timestamp", (STRING,), TIMESTAMP, conversions.string_to_timestamp),
    ),
    _function(
        "uint",
        ("uint64_to_uint64", (UINT,), UINT, conversions.identity),
        ("double_to_uint64", (DOUBLE,), UINT, conversions.double_to_uint),
        ("int64_to_uint64", (INT,), UINT, conversions.int_to_uint),
        ("string_to_uint64", (STRING,), UINT, conversions.string_to_uint),
    ),
)

TEXTS: Final = (
    _function("size", *((f"size_{name}", (kind,), INT, len) for kind, name in _SIZED)),
    _function("size", *((f"{name}_size", (kind,), INT, len) for kind, name in _SIZED), member=True),
    _function(
        "contains",
        ("contains_string", (STRING, STRING), BOOL, lambda text, part: part in text),
        member=True,
    ),
    _function("startsWith", ("starts_with_string", (STRING, STRING), BOOL, str.startswith), member=True),
    _function("endsWith", ("ends_with_string", (STRING, STRING), BOOL, str.endswith), member=True),
    _function("matches", ("matches", (STRING, STRING), BOOL, matches)),
    _function("matches", ("matches_string", (STRING, STRING), BOOL, matches), member=True),
)

TIMES: Final = (
    *(
        _function(
            name,
            (overload, (TIMESTAMP,), INT, part),
            (f"{overload}_with_tz", (TIMESTAMP, STRING), INT, part),
            member=True,
        )
        for name, (overload, part) in times.TIMESTAMP_PARTS.items()
    ),
    *(
        _function(name, (overload, (DURATION,), INT, part), member=True)
        for name, (overload, part) in times.DURATION_PARTS.items()
    ),
)

LIBRARY: Final = Library(
    "stdlib",
    0,
    (*OPERATORS, *CONVERSIONS, *TEXTS, *TIMES),
    macros=macros.STANDARD,
    types=(BOOL, BYTES, DOUBLE, DURATION, INT, list_of(A), map_of(A, B), NULL, STRING, TIMESTAMP, TYPE, UINT),
)
