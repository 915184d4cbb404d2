"""Functions of an expression language: a name with its overloads.

Function("startsWith", (Overload("starts_with_string", (STRING, STRING), BOOL, str.startswith, member=True),))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kubechronicle.api.cel.errors import no_such_overload
from kubechronicle.api.cel.types import CelType

RuntimeCost = Callable[[Sequence[Any], Any], int]
"""(argument values, the receiver first; the result) -> cost of the call, which replaces the usual 1."""


class Overload(NamedTuple):
    """One signature of a function.

    ``id``: cel-go's overload id.
    ``args``: the argument types; a member function's receiver comes first.
    ``call``: takes the values as positional arguments; raises EvaluationError. The values have the declared types:
    the type of a dynamic value is checked before the call.
    ``cost``: the cost at run time; None: 1.
    ``weight``: units of cost that a call takes beyond its cost, by the time it takes here (allowance.py).
    """

    id: str
    args: tuple[CelType, ...]
    result: CelType
    call: Callable[..., Any]
    member: bool = False
    cost: RuntimeCost | None = None
    weight: int = 0


class Function(NamedTuple):
    """A function's name, such as ``startsWith``, ``optional.of`` or the operator ``_+_``, with its overloads."""

    name: str
    overloads: tuple[Overload, ...]


def planned(*_: Any) -> Any:
    """Stand in for the ``call`` of an overload that the planner evaluates itself."""
    raise no_such_overload()
