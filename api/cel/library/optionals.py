"""Optional values (``optional.of``, ``x.?y``, ``or``, ``orValue``, ``first``, ``last``…), and the function that macros
with two variables expand to.

Source: cel-go ``cel/library.go`` (OptionalTypes, version 2), ``ext/comprehensions.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.operations.equality import has_key
from kubechronicle.api.cel.syntax import macros
from kubechronicle.api.cel.types import (
    BOOL,
    DYN,
    INT,
    STRING,
    CelType,
    Function,
    Overload,
    list_of,
    map_of,
    optional_of,
    param,
    planned,
)
from kubechronicle.api.cel.values import NONE, Duration, OptionalValue, Timestamp

K: Final = param("K")
V: Final = param("V")
OPTIONAL: Final = optional_of(V)
LIST: Final = list_of(V)
MAP: Final = map_of(K, V)


def is_zero(value: Any) -> bool:
    """Return whether a value is its type's zero: null, false, 0, empty, or an optional without a value."""
    if isinstance(value, OptionalValue):
        return not value.has_value or is_zero(value.value)
    if isinstance(value, Timestamp):
        return False
    if isinstance(value, Duration):
        return value.nanoseconds == 0
    return value is None or (isinstance(value, (bool, int, float, str, bytes, list, tuple, dict)) and not value)


def of_non_zero(value: Any) -> OptionalValue:
    return NONE if is_zero(value) else OptionalValue(value)


def value_of(optional: OptionalValue) -> Any:
    if not optional.has_value:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def unwrap(items: Sequence[Any]) -> list[Any]:
    for item in items:
        if not isinstance(item, OptionalValue):
            raise EvaluationError(f"value {item} is not optional")
    return [item.value for item in items if item.has_value]


def insert(mapping: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    """Return a map with one more entry. EvaluationError if the key exists."""
    return insert_all(mapping, {key: value})


def insert_all(mapping: dict[Any, Any], entries: dict[Any, Any]) -> dict[Any, Any]:
    """Return a map with more entries. EvaluationError if a key exists."""
    for key in entries:
        if has_key(mapping, key):
            raise EvaluationError(f"insert failed: key {key} already exists")
    return {**mapping, **entries}


def _member(name: str, overload: str, args: tuple[CelType, ...], result: CelType, call: Callable[..., Any]) -> Function:
    return Function(name, (Overload(overload, args, result, call, member=True),))


def _plain(name: str, overload: str, args: tuple[CelType, ...], result: CelType, call: Callable[..., Any]) -> Function:
    return Function(name, (Overload(overload, args, result, call),))


FUNCTIONS: Final = (
    _plain("optional.of", "optional_of", (V,), OPTIONAL, OptionalValue),
    _plain("optional.ofNonZeroValue", "optional_ofNonZeroValue", (V,), OPTIONAL, of_non_zero),
    _plain("optional.none", "optional_none", (), OPTIONAL, lambda: NONE),
    _plain("optional.unwrap", "optional_unwrap", (list_of(OPTIONAL),), LIST, unwrap),
    _member("unwrapOpt", "optional_unwrapOpt", (list_of(OPTIONAL),), LIST, unwrap),
    _member("value", "optional_value", (OPTIONAL,), V, value_of),
    _member("hasValue", "optional_hasValue", (OPTIONAL,), BOOL, lambda optional: optional.has_value),
    _member("or", "optional_or_optional", (OPTIONAL, OPTIONAL), OPTIONAL, planned),
    _member("orValue", "optional_orValue_value", (OPTIONAL, V), V, planned),
    _member("first", "list_first", (LIST,), OPTIONAL, lambda items: OptionalValue(items[0]) if items else NONE),
    _member("last", "list_last", (LIST,), OPTIONAL, lambda items: OptionalValue(items[-1]) if items else NONE),
    _plain("_?._", "select_optional_field", (DYN, STRING), OPTIONAL, planned),
    Function(
        "_[?_]",
        (
            Overload("list_optindex_optional_int", (LIST, INT), OPTIONAL, planned),
            Overload("optional_list_optindex_optional_int", (optional_of(LIST), INT), OPTIONAL, planned),
            Overload("map_optindex_optional_value", (MAP, K), OPTIONAL, planned),
            Overload("optional_map_optindex_optional_value", (optional_of(MAP), K), OPTIONAL, planned),
        ),
    ),
    Function(
        "_[_]",
        (
            Overload("optional_list_index_int", (optional_of(LIST), INT), OPTIONAL, planned),
            Overload("optional_map_index_value", (optional_of(MAP), K), OPTIONAL, planned),
        ),
    ),
)

LIBRARY: Final = Library("optional", 2, FUNCTIONS, macros=macros.OPTIONAL, types=(OPTIONAL,))

TWO_VARIABLES: Final = Library(
    "two-variable comprehensions",
    0,
    (
        Function(
            "cel.@mapInsert",
            (
                Overload("@mapInsert_map_key_value", (MAP, K, V), MAP, insert),
                Overload("@mapInsert_map_map", (MAP, MAP), MAP, insert_all),
            ),
        ),
    ),
    macros=macros.TWO_VARIABLES,
)
