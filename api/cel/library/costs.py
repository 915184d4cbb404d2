"""Run-time costs of calls of Kubernetes' and cel-go's extension functions.

The arithmetic uses doubles, as there: 3 * 0.1 rounds up to 1, as does 10 * 0.1.
Source: k8s.io/apiserver/pkg/cel/library/cost.go and cel-go's cost trackers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from kubechronicle.api.cel.library.address_parser import IpAddress, Range
from kubechronicle.api.cel.types import RuntimeCost
from kubechronicle.api.values.allowance import ALLOWANCE

TRAVERSAL: Final = 0.1
"""Cost per character of traversing a string."""
PATTERN: Final = 0.25
"""Cost per character of a pattern, for each character it is applied to."""
LIST_BASE: Final = 10
STRUCT_BASE: Final = 40
AUTHORIZATION_CHECK: Final = 350_000
"""Cost of an authorization check; an expression can afford two."""


def size(value: Any) -> int:
    """Return the size of a value for costs: characters, bytes, elements, entries; 1 for any other value."""
    if isinstance(value, (str, bytes, list, tuple, dict)):
        return len(value)
    if isinstance(value, IpAddress):
        return value.bits // 8
    if isinstance(value, Range):
        return math.ceil(value.length / 8)
    return 1


def traversal(times: int = 1) -> RuntimeCost:
    """Return the cost function of traversing the first argument ``times`` times."""
    if times == 1:
        return lambda args, result: math.ceil(size(args[0]) * TRAVERSAL)
    return lambda args, result: math.ceil(size(args[0]) * times * TRAVERSAL)


def joining(args: Sequence[Any], result: Any) -> int:
    """Return the cost of writing and traversing the result."""
    return math.ceil(size(result) * 2 * TRAVERSAL)


def searching(args: Sequence[Any], result: Any) -> int:
    """Return the cost of applying a pattern, the second argument, to the first."""
    return pattern_cost(size(args[0]), size(args[1]))


def pattern_cost(text: int, pattern: int) -> int:
    """Return the cost of applying a pattern to a text, from their lengths."""
    return math.ceil((1.0 + text) * TRAVERSAL) * math.ceil(pattern * PATTERN)


def data(value: Any) -> int:
    """Return the cost of traversing a value and everything in it."""
    if isinstance(value, str):
        return int(len(value.encode(errors="replace")) * TRAVERSAL)
    if isinstance(value, bytes):
        return int(len(value) * TRAVERSAL)
    if isinstance(value, (list, tuple)):
        ALLOWANCE.get().walk(len(value))
        return sum(map(data, value))
    if isinstance(value, dict):
        ALLOWANCE.get().walk(len(value))
        return sum(data(key) + data(each) for key, each in value.items())
    return 1


def walking(args: Sequence[Any], result: Any) -> int:
    """Return the cost of traversing the first argument and everything in it."""
    return data(args[0])


def selector(args: Sequence[Any], result: Any) -> int:
    """Return the cost of parsing a selector, the second argument, into requirements of two characters or more."""
    length = size(args[1])
    parsed, requirements = math.ceil(length * TRAVERSAL), math.ceil(length * 0.5)
    return LIST_BASE + parsed + math.ceil(requirements * float(LIST_BASE + STRUCT_BASE))


def authorization_check(args: Sequence[Any], result: Any) -> int:
    """Return the cost of an authorization check."""
    return AUTHORIZATION_CHECK


def products(factor: float) -> RuntimeCost:
    """Return the cost function of comparing each pair of elements of two lists ``factor`` times."""
    return lambda args, result: 1 + int(float(size(args[0]) * size(args[1])) * factor)


def allocating(factor: float, elements: int) -> int:
    """Return the cost of making a list with ``factor`` steps for each element."""
    return int(elements * factor) + 1 + LIST_BASE


def making_result(args: Sequence[Any], result: Any) -> int:
    """Return the cost of copying each element into a new list, the result."""
    return allocating(1, size(result))


def comparing_all(position: int) -> RuntimeCost:
    """Return the cost function of comparing all pairs of elements of the argument at ``position``."""

    def cost(args: Sequence[Any], result: Any) -> int:
        elements = args[position]
        texts = len(elements) > 0 and isinstance(elements[0], (str, bytes))
        return allocating(2.0 + TRAVERSAL if texts else 2.0, len(elements) ** 2)

    return cost
