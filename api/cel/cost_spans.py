"""Spans: sizes and costs known only within bounds. The bounds are unsigned 64-bit numbers that saturate.

Source: cel-go ``checker/cost.go`` (SizeEstimate, CostEstimate).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kubechronicle.api.cel.types import RuntimeCost
from kubechronicle.api.cel.values import OptionalValue

MOST: Final = 2**64 - 1


class CostSpan(NamedTuple):
    """At least ``least``, at most ``most``."""

    least: int
    most: int

    def plus(self, other: CostSpan) -> CostSpan:
        return CostSpan(min(self.least + other.least, MOST), min(self.most + other.most, MOST))

    def times(self, other: CostSpan) -> CostSpan:
        return CostSpan(min(self.least * other.least, MOST), min(self.most * other.most, MOST))

    def scaled(self, factor: float) -> CostSpan:
        """Return the span times a factor, rounded up."""
        return CostSpan(_scaled(self.least, factor), _scaled(self.most, factor))

    def union(self, other: CostSpan) -> CostSpan:
        return CostSpan(min(self.least, other.least), max(self.most, other.most))


def _scaled(number: int, factor: float) -> int:
    product = float(number) * factor
    return MOST if product >= float(2**64) else math.ceil(product)


def exactly(number: int) -> CostSpan:
    return CostSpan(number, number)


UNKNOWN: Final = CostSpan(0, MOST)
NOTHING: Final = exactly(0)
ONE: Final = exactly(1)
EMPTY: Final = CostSpan(MOST, 0)
"""The start of a union."""


# -- call costs --------------------------------------------------------------------------------------------------------
#
# Run-time costs of calls of the standard library, where they are not the usual 1.
#
# Traversing a text costs a tenth of its length, rounded up. Source: cel-go ``interpreter/runtimecost.go``.


LIST_CREATE: Final = 10
MAP_CREATE: Final = 30
STRUCT_CREATE: Final = 40


def actual_size(value: Any) -> int:
    """Return the characters, bytes or elements of a value; ``cel_size`` of an opaque one; 1 for any other."""
    if isinstance(value, (str, bytes, list, tuple, dict)):
        return len(value)
    if isinstance(value, OptionalValue):
        return actual_size(value.value) if value.has_value else 1
    return int(getattr(value, "cel_size", 1))


def traversal(size: int) -> int:
    """Return the cost of traversing so many characters: a tenth, rounded up."""
    return (size + 9) // 10


def first_traversed(args: Sequence[Any], _: Any) -> int:
    return traversal(actual_size(args[0]))


def smaller_traversed(args: Sequence[Any], _: Any) -> int:
    return traversal(min(actual_size(args[0]), actual_size(args[1])))


def both_traversed(args: Sequence[Any], _: Any) -> int:
    return traversal(actual_size(args[0]) + actual_size(args[1]))


def product_traversed(args: Sequence[Any], _: Any) -> int:
    return traversal(actual_size(args[0])) * traversal(actual_size(args[1]))


def pattern_matched(args: Sequence[Any], _: Any) -> int:
    return traversal(actual_size(args[0]) + 1) * ((actual_size(args[1]) + 3) // 4)


def second_size(args: Sequence[Any], _: Any) -> int:
    return actual_size(args[1])


BY_OVERLOAD: Final[dict[str, RuntimeCost]] = {
    **dict.fromkeys(
        ("starts_with_string", "ends_with_string", "string_to_bytes", "bytes_to_string"),
        first_traversed,
    ),
    **dict.fromkeys(
        (
            *("less_string", "greater_string", "less_equals_string", "greater_equals_string"),
            *("less_bytes", "greater_bytes", "less_equals_bytes", "greater_equals_bytes", "equals", "not_equals"),
        ),
        smaller_traversed,
    ),
    "in_list": second_size,
    "add_string": both_traversed,
    "add_bytes": both_traversed,
    "matches_string": pattern_matched,
    "contains_string": product_traversed,
}
