"""CEL functions of lists."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import CostExceeded, EvaluationError, no_such_overload
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.operations.equality import COMPARABLE_TYPES, compare, equal
from kubechronicle.api.cel.syntax.ast import CallExpression, Comprehension, Ident, ListNode, Literal, Node, Select
from kubechronicle.api.cel.syntax.macros import STANDARD, UNUSED, Macro, MacroError
from kubechronicle.api.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    CelType,
    Function,
    Overload,
    list_of,
    param,
)
from kubechronicle.api.cel.values import INT_MAX, INT_MIN, UINT_MAX, Duration, UInt, type_name
from kubechronicle.api.values.allowance import ALLOWANCE

# -- list aggregates ---------------------------------------------------------------------------------------------------
#
# Kubernetes' own list functions: isSorted, sum, min, max, indexOf, lastIndexOf (library kubernetes.lists).
#
# Elements without an order are skipped, as in Kubernetes. Only a list of type dyn can have them.


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


AGGREGATES: Final = Library(
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


# -- list transforms ---------------------------------------------------------------------------------------------------
#
# cel-go's list functions, version 3: slice, flatten, sort, sortBy, range, reverse, distinct (since v1.34).


LONGEST: Final = 1_000_000
"""The longest list within the budget of any expression."""

_SORT_BY: Final = "@sortByAssociatedKeys"
_SORT_BY_INPUT: Final = "@__sortBy_input__"


def to_slice(elements: Sequence[Any], start: int, end: int) -> list[Any]:
    """Return the elements from ``start`` to before ``end``. EvaluationError if these are out of range."""
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(elements) < end:
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return list(elements[start:end])


def flatten(elements: Sequence[Any], depth: int = 1) -> list[Any]:
    """Return the elements with nested lists replaced by their elements, ``depth`` levels down."""
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    allowance = ALLOWANCE.get()
    allowance.walk(len(elements) + 1)
    allowance.make(8 * len(elements))
    flat: list[Any] = []
    for each in elements:
        if depth and isinstance(each, (list, tuple)):
            flat += flatten(each, depth - 1)
        else:
            flat.append(each)
    return flat


def sort(elements: Sequence[Any]) -> Sequence[Any]:
    """Return the elements in order."""
    return sort_by_keys(elements, elements)


def sort_by_keys(elements: Sequence[Any], keys: Sequence[Any]) -> Sequence[Any]:
    """Return the elements in the order of their keys. EvaluationError if the keys have no order."""
    if len(elements) != len(keys):
        raise EvaluationError(
            f"{_SORT_BY}() expected a list of the same size as the associated keys list, "
            f"but got {len(elements)} and {len(keys)} elements respectively"
        )
    if not elements:
        return elements
    _bound_pairs(elements)
    if not isinstance(keys[0], COMPARABLE_TYPES):
        raise EvaluationError("list elements must be comparable")
    kind = type_name(keys[0])
    if any(type_name(key) != kind for key in keys):
        raise EvaluationError("list elements must have the same type")
    order = functools.cmp_to_key(lambda left, right: compare(left, right) or 0)
    return [elements[place] for place in sorted(range(len(keys)), key=lambda place: order(keys[place]))]


def to_range(length: int) -> list[int]:
    """Return the numbers from 0 to before ``length``."""
    if length > LONGEST:
        raise CostExceeded
    return list(range(length))


def to_reverse(elements: Sequence[Any]) -> list[Any]:
    """Return the elements from last to first."""
    return list(reversed(elements))


def distinct(elements: Sequence[Any]) -> Sequence[Any]:
    """Return the elements without later duplicates."""
    _bound_pairs(elements)
    unique: list[Any] = []
    for each in elements:
        ALLOWANCE.get().walk(len(unique))
        if not any(equal(each, other) for other in unique):
            unique.append(each)
    return unique


def _bound_pairs(elements: Sequence[Any]) -> None:
    """Raise CostExceeded for a list of which all pairs cost more than any budget, at two each."""
    if len(elements) ** 2 > LONGEST:
        raise CostExceeded


_SORTABLE: Final = (ListNode, Select, Ident, Comprehension, CallExpression)
_MAP: Final = next(macro for macro in STANDARD if macro.name == "map" and macro.arguments == 2)


def _sort_by(at: int, target: Node | None, arguments: Sequence[Node]) -> Node | None:
    # The expansion binds the target to a name, so that it is evaluated once.
    if target is None or not isinstance(target, _SORTABLE):
        offset = at if target is None else target.offset
        message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        raise MacroError(offset, message)
    keys = _MAP.expand(at, Ident(at, _SORT_BY_INPUT), arguments)
    if keys is None:
        return None
    result = CallExpression(at, _SORT_BY, [keys], Ident(at, _SORT_BY_INPUT))
    unused = Literal(at, False)
    return Comprehension(
        at, ListNode(at, []), UNUSED, _SORT_BY_INPUT, target, unused, Ident(at, _SORT_BY_INPUT), result
    )


def _flatten_cost(args: Sequence[Any], result: Any) -> int:
    return costs.allocating(float(args[1]) if len(args) == 2 else 1.0, costs.size(args[0]))


_T: Final = param("T")
_LIST: Final = list_of(_T)


def _sort_overload(kind: CelType) -> Overload:
    name = f"list_{kind.name}_sort"
    return Overload(name, (list_of(kind),), list_of(kind), sort, member=True, cost=costs.comparing_all(0))


def _sort_by_overload(kind: CelType) -> Overload:
    name = f"list_{kind.name}_sortByAssociatedKeys"
    return Overload(name, (_LIST, list_of(kind)), _LIST, sort_by_keys, member=True, cost=costs.comparing_all(1))


TRANSFORMS: Final = Library(
    "cel.lib.ext.lists",
    3,
    (
        Function("slice", (Overload("list_slice", (_LIST, INT, INT), _LIST, to_slice, True, costs.making_result),)),
        Function(
            "flatten",
            (
                Overload("list_flatten", (list_of(_LIST),), _LIST, flatten, True, _flatten_cost),
                Overload("list_flatten_int", (list_of(DYN), INT), list_of(DYN), flatten, True, _flatten_cost),
            ),
        ),
        Function("sort", tuple(map(_sort_overload, COMPARABLE.values()))),
        Function(_SORT_BY, tuple(map(_sort_by_overload, COMPARABLE.values()))),
        Function("lists.range", (Overload("lists_range", (INT,), list_of(INT), to_range, cost=costs.making_result),)),
        Function("reverse", (Overload("list_reverse", (_LIST,), _LIST, to_reverse, True, costs.making_result),)),
        Function("distinct", (Overload("list_distinct", (_LIST,), _LIST, distinct, True, costs.comparing_all(0)),)),
    ),
    macros=(Macro("sortBy", 2, True, _sort_by),),
)


# -- sets --------------------------------------------------------------------------------------------------------------
#
# Lists as sets: ``sets.contains``, ``sets.equivalent``, ``sets.intersects`` (cel-go's library, since v1.29).


def _has(elements: Sequence[Any], wanted: Any) -> bool:
    ALLOWANCE.get().walk(len(elements))
    return any(equal(each, wanted) for each in elements)


def contains(elements: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Return whether every element of ``wanted`` is in ``elements``."""
    return all(_has(elements, each) for each in wanted)


def equivalent(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether the two have the same elements, without counting repetitions."""
    return contains(left, right) and contains(right, left)


def intersects(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return whether the two have an element in common."""
    return any(_has(right, each) for each in left)


_LISTS: Final = (list_of(param("T")), list_of(param("T")))

SETS: Final = Library(
    "cel.lib.ext.sets",
    0,
    (
        Function(
            "sets.contains",
            (Overload("list_sets_contains_list", _LISTS, BOOL, contains, cost=costs.products(1)),),
        ),
        Function(
            "sets.equivalent",
            (Overload("list_sets_equivalent_list", _LISTS, BOOL, equivalent, cost=costs.products(2)),),
        ),
        Function(
            "sets.intersects",
            (Overload("list_sets_intersects_list", _LISTS, BOOL, intersects, cost=costs.products(1)),),
        ),
    ),
)
