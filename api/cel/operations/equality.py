"""CEL's equality of values of any type: it never fails, and compares numbers by value across their types.

Source: cel-go ``common/types`` (Equal of each type); proposal "heterogeneous equality".
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.cel.values import Duration, OptionalValue, Timestamp, TypeValue, type_name
from kubechronicle.api.values.allowance import ALLOWANCE


def equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal: ``1 == 1.0 == 1u``, ``1 != true``, ``nan != nan``; lists and maps deeply."""
    kind = type(left)
    other = type(right)
    if kind is other:
        if kind in _PLAIN:
            return bool(left == right)
    elif kind is bool or other is bool:
        return False
    if isinstance(left, (int, float)):
        if not isinstance(right, (int, float)):
            return False
        if isinstance(left, float) or isinstance(right, float):
            return float(left) == float(right)
        return left == right
    if isinstance(left, (list, tuple)):
        if kind is not list and hasattr(left, "cel_equal"):
            return isinstance(right, (list, tuple)) and bool(left.cel_equal(right))
        return isinstance(right, (list, tuple)) and _equal_lists(left, right)
    if isinstance(left, dict):
        return isinstance(right, dict) and _equal_maps(left, right)
    if isinstance(left, OptionalValue):
        if not isinstance(right, OptionalValue) or left.has_value != right.has_value:
            return False
        return not left.has_value or equal(left.value, right.value)
    return bool(left == right)


_PLAIN = frozenset({str, bool, int, float, bytes, type(None), Timestamp, Duration, TypeValue})


def _equal_lists(left: list[Any] | tuple[Any, ...], right: list[Any] | tuple[Any, ...]) -> bool:
    if len(left) != len(right):
        return False
    ALLOWANCE.get().walk(len(left))  # a list may hold another one many times, which costs as if it were there once
    return all(map(equal, left, right))


def _equal_maps(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    if len(left) != len(right) or _object_name(left) != _object_name(right):
        return False
    ALLOWANCE.get().walk(len(left))
    return all(has_key(right, key) and equal(value, right[key]) for key, value in left.items())


def _object_name(value: dict[Any, Any]) -> str:
    """Return the type's name of a constructed object, "map" for plain JSON."""
    return type_name(value) if type(value) is not dict else "map"


def has_key(mapping: dict[Any, Any], key: Any) -> bool:
    """Return whether a map has the key. For Python, True and 1 are the same key; for CEL they differ."""
    try:
        if key not in mapping:
            return False
    except TypeError:  # a list or map is no key of any map
        return False
    if type(key) is str or key not in (0, 1):
        return True
    wanted = type(key) is bool
    return any((type(present) is bool) is wanted for present in mapping if present == key)


# -- ordering ----------------------------------------------------------------------------------------------------------
#
# Order of CEL's values: numbers by value across their types, texts and bytes by their bytes, false before true.


_ORDERED: Final = (str, bytes, Timestamp, Duration)
COMPARABLE_TYPES: Final = (str, bytes, bool, int, float, Timestamp, Duration)


def compare(left: Any, right: Any) -> int | None:
    """Return -1, 0 or 1; None if the two have no order (other types, or NaN)."""
    kind = type(left)
    if (kind is bool) is not (type(right) is bool):
        return None
    if isinstance(left, (int, float)):
        if not isinstance(right, (int, float)) or left != left or right != right:
            return None
    elif not isinstance(left, _ORDERED) or not isinstance(right, kind):
        return None
    if left == right:
        return 0
    return -1 if left < right else 1
