"""cel-go's list functions, version 3: slice, flatten, sort, sortBy, range, reverse, distinct (since v1.34)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.errors import CostExceeded, EvaluationError
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.library.list_aggregates import COMPARABLE
from kubechronicle.api.cel.operations.equality import equal
from kubechronicle.api.cel.operations.ordering import COMPARABLE_TYPES, compare
from kubechronicle.api.cel.overloads import Function, Overload
from kubechronicle.api.cel.syntax.ast import CallExpression, Comprehension, Ident, ListNode, Literal, Node, Select
from kubechronicle.api.cel.syntax.macros import STANDARD, UNUSED, Macro, MacroError
from kubechronicle.api.cel.types import DYN, INT, CelType, list_of, param
from kubechronicle.api.cel.values import type_name
from kubechronicle.api.values.allowance import ALLOWANCE

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


LIBRARY: Final = Library(
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
