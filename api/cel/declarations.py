"""What a library declares: functions with their overloads, macros, constants.

Function("startsWith", (Overload("starts_with_string", (STRING, STRING), BOOL, str.startswith, member=True),))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kubechronicle.api.cel.types import Type

if TYPE_CHECKING:
    from kubechronicle.api.cel.syntax.macros import Macro

RuntimeCost = Callable[[Sequence[Any], Any], int]
"""(values of the arguments, the receiver first; the result) -> what the call costs, instead of the usual 1."""


class Overload(NamedTuple):
    """One signature of a function. ``id`` is cel-go's overload id; ``args`` counts the receiver of a member function.

    ``call`` takes the values as positional arguments, of the declared types (a value of a dynamic expression is checked
    before), and raises EvaluationError. ``cost`` says what a call costs at run time; None: 1. ``estimate`` is kept for
    the static estimate: it takes and gives what cost_estimate.py describes.
    """

    id: str
    args: tuple[Type, ...]
    result: Type
    call: Callable[..., Any]
    member: bool = False
    cost: RuntimeCost | None = None
    estimate: Callable[..., Any] | None = None


class Function(NamedTuple):
    """A function of a name, such as ``startsWith`` or ``optional.of``; operators are called ``_+_`` and so on."""

    name: str
    overloads: tuple[Overload, ...]


class Library(NamedTuple):
    """A named set of declarations. ``constants`` are identifiers of the whole environment: name -> (type, value).

    ``types`` are object types that expressions may construct (``Name{field: value}``) or name.
    """

    name: str
    version: int
    functions: tuple[Function, ...]
    macros: tuple[Macro, ...] = ()
    constants: Mapping[str, tuple[Type, Any]] = {}
    types: tuple[Type, ...] = ()
