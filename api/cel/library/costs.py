"""What calls cost at run time, as the estimator of Kubernetes (k8s.io/apiserver/pkg/cel/library/cost.go) and cel-go's
trackers count them. The arithmetic is that of doubles there, and so it is here: 3 * 0.1 rounds up to 1, as 10 * 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from kubechronicle.api.cel.library.address_parser import Address, Range
from kubechronicle.api.cel.overloads import RuntimeCost

TRAVERSAL: Final = 0.1
"""Per character of a string that is read through."""
PATTERN: Final = 0.25
"""Per character of a pattern that is applied to one character."""
LIST_BASE: Final = 10
STRUCT_BASE: Final = 40
AUTHORIZATION_CHECK: Final = 350_000
"""So much that an expression can afford two."""


def size(value: Any) -> int:
    """Return the size of a value as costs count it: characters, bytes, elements, entries; 1 for what has none."""
    if isinstance(value, (str, bytes, list, tuple, dict)):
        return len(value)
    if isinstance(value, Address):
        return value.bits // 8
    if isinstance(value, Range):
        return math.ceil(value.length / 8)
    return 1


def traversal(times: int = 1) -> RuntimeCost:
    """The first argument is read through once, or ``times``."""
    if times == 1:
        return lambda args, result: math.ceil(size(args[0]) * TRAVERSAL)
    return lambda args, result: math.ceil(size(args[0]) * times * TRAVERSAL)


def joining(args: Sequence[Any], result: Any) -> int:
    """The result is written and read through."""
    return math.ceil(size(result) * 2 * TRAVERSAL)


def searching(args: Sequence[Any], result: Any) -> int:
    """A pattern, the second argument, is applied to all of the first."""
    return pattern_cost(size(args[0]), size(args[1]))


def pattern_cost(text: int, pattern: int) -> int:
    """Return what a pattern costs that is applied to a text, by their lengths."""
    return math.ceil((1.0 + text) * TRAVERSAL) * math.ceil(pattern * PATTERN)


def data(value: Any) -> int:
    """Return the cost of walking through a value with all that is in it."""
    if isinstance(value, str):
        return int(len(value.encode(errors="replace")) * TRAVERSAL)
    if isinstance(value, bytes):
        return int(len(value) * TRAVERSAL)
    if isinstance(value, (list, tuple)):
        return sum(map(data, value))
    if isinstance(value, dict):
        return sum(data(key) + data(each) for key, each in value.items())
    return 1


def walking(args: Sequence[Any], result: Any) -> int:
    """The first argument is walked through, with all that is in it."""
    return data(args[0])


def selector(args: Sequence[Any], result: Any) -> int:
    """A selector, the second argument, is parsed into requirements of at least two characters each."""
    length = size(args[1])
    parsed, requirements = math.ceil(length * TRAVERSAL), math.ceil(length * 0.5)
    return LIST_BASE + parsed + math.ceil(requirements * float(LIST_BASE + STRUCT_BASE))


def authorization_check(args: Sequence[Any], result: Any) -> int:
    """An authorizer is asked."""
    return AUTHORIZATION_CHECK


def products(factor: float) -> RuntimeCost:
    """Every element of the first list is compared with every element of the second, ``factor`` times."""
    return lambda args, result: 1 + int(float(size(args[0]) * size(args[1])) * factor)


def allocating(factor: float, elements: int) -> int:
    """Return the cost of making a list with ``factor`` steps for each of so many elements."""
    return int(elements * factor) + 1 + LIST_BASE


def making_result(args: Sequence[Any], result: Any) -> int:
    """The result is a new list, each element copied."""
    return allocating(1, size(result))


def comparing_all(position: int) -> RuntimeCost:
    """Every element of the list at ``position`` of the arguments is compared with every other."""

    def cost(args: Sequence[Any], result: Any) -> int:
        elements = args[position]
        texts = len(elements) > 0 and isinstance(elements[0], (str, bytes))
        return allocating(2.0 + TRAVERSAL if texts else 2.0, len(elements) ** 2)

    return cost
