"""Kubernetes' own list functions: isSorted, sum, min, max, indexOf, lastIndexOf (library kubernetes.lists).

Elements without an order are skipped, as in Kubernetes. Only a list of type dyn can have them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import EvaluationError, no_such_overload
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.operations.equality import equal
from kubechronicle.api.cel.operations.ordering import compare
from kubechronicle.api.cel.overloads import Function, Overload
from kubechronicle.api.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    CelType,
    list_of,
    param,
)
from kubechronicle.api.cel.values import INT_MAX, INT_MIN, UINT_MAX, Duration, UInt

_SUMMABLE: Final[dict[str, tuple[CelType, Any]]] = {
    "int": (INT, 0),
    "uint": (UINT, UInt(0)),
    "double": (DOUBLE, 0.0),
    "duration": (DURATION, Duration(0)),
}
COMPARABLE: Final[dict[str, CelType]] = {
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "bool": BOOL,
    "duration": DURATION,
    "timestamp": TIMESTAMP,
    "string": STRING,
    "bytes": BYTES,
}


def is_sorted(elements: Sequence[Any]) -> bool:
    """Return whether no element is less than the one before it."""
    return not any(compare(left, right) == 1 for left, right in itertools.pairwise(elements))


def _summing(zero: Any) -> Callable[[Sequence[Any]], Any]:
    def total(elements: Sequence[Any]) -> Any:
        result = zero
        for each in elements:
            if type(each) is not type(zero):
                raise no_such_overload()
            result = _plus(result, each)
        return result

    return total


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, Duration):
        nanoseconds = left.nanoseconds + right.nanoseconds
        if not INT_MIN <= nanoseconds <= INT_MAX:
            raise EvaluationError("duration overflow")
        return Duration(nanoseconds)
    total = left + right
    if isinstance(left, UInt):
        if total > UINT_MAX:
            raise EvaluationError("unsigned integer overflow")
        return UInt(total)
    if isinstance(left, int) and not INT_MIN <= total <= INT_MAX:
        raise EvaluationError("integer overflow")
    return total


def _choosing(name: str, preferred: int) -> Callable[[Sequence[Any]], Any]:
    def choose(elements: Sequence[Any]) -> Any:
        if not elements:
            raise EvaluationError(f"{name} called on empty list")
        chosen = elements[0]
        for each in elements[1:]:
            if compare(chosen, each) == preferred:
                chosen = each
        return chosen

    return choose


minimum: Final = _choosing("min", 1)
maximum: Final = _choosing("max", -1)


def index_of(elements: Sequence[Any], wanted: Any) -> int:
    """Return the index of the first element equal to ``wanted``, -1 if there is none."""
    return next((place for place, each in enumerate(elements) if equal(each, wanted)), -1)


def last_index_of(elements: Sequence[Any], wanted: Any) -> int:
    """Return the index of the last element equal to ``wanted``, -1 if there is none."""
    return next((place for place in range(len(elements) - 1, -1, -1) if equal(elements[place], wanted)), -1)


_A: Final = param("A")


def _of_list(id_: str, element: CelType, result: CelType, call: Callable[..., Any]) -> Overload:
    return Overload(id_, (list_of(element),), result, call, member=True, cost=costs.walking)


def _place(name: str, id_: str, call: Callable[..., Any]) -> Function:
    return Function(name, (Overload(id_, (list_of(_A), _A), INT, call, member=True, cost=costs.walking),))


LIBRARY: Final = Library(
    "kubernetes.lists",
    0,
    (
        Function(
            "isSorted",
            tuple(_of_list(f"list_{name}_is_sorted_bool", kind, BOOL, is_sorted) for name, kind in COMPARABLE.items()),
        ),
        Function(
            "sum",
            tuple(
                _of_list(f"list_{name}_sum_{name}", kind, kind, _summing(zero))
                for name, (kind, zero) in _SUMMABLE.items()
            ),
        ),
        Function(
            "max",
            tuple(_of_list(f"list_{name}_max_{name}", kind, kind, maximum) for name, kind in COMPARABLE.items()),
        ),
        Function(
            "min",
            tuple(_of_list(f"list_{name}_min_{name}", kind, kind, minimum) for name, kind in COMPARABLE.items()),
        ),
        _place("indexOf", "list_a_index_of_int", index_of),
        _place("lastIndexOf", "list_a_last_index_of_int", last_index_of),
    ),
)
