"""Lists as sets: ``sets.contains``, ``sets.equivalent``, ``sets.intersects`` (cel-go's library, since v1.29)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.operations.equality import equal
from kubechronicle.api.cel.overloads import Function, Overload
from kubechronicle.api.cel.types import BOOL, list_of, param
from kubechronicle.api.values.allowance import ALLOWANCE


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

LIBRARY: Final = Library(
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
