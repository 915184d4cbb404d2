"""Macros: calls that the parser replaces with other expressions before checking.

Source: cel-go ``parser/macro.go``, ``cel/library.go`` (optMap, optFlatMap), ``ext/comprehensions.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kubechronicle.api.cel.syntax.ast import (
    CallExpression,
    Comprehension,
    Ident,
    Keep,
    KeptExpression,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
)

ACCUMULATOR: Final = "@result"
"""The accumulator's name in expansions. No expression can write it."""
OLD_ACCUMULATOR: Final = "__result__"
UNUSED: Final = "#unused"


class MacroError(Exception):
    """Wrong use of a macro: the place (``offset`` in characters) and cel-go's message."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message


Expansion = Callable[[int, Node | None, Sequence[Node]], Node | None]
"""(place of the call, target, arguments) -> the replacement; None: it is a plain call. Raises MacroError."""


class Macro(NamedTuple):
    """A macro. The parser finds it by name, number of arguments and presence of a receiver (``x.all(…)``)."""

    name: str
    arguments: int
    receiver: bool
    expand: Expansion


def variable(argument: Node, message: str = "argument must be a simple name") -> str:
    """Return the name of a variable that a macro declares. MacroError if it is no name, or the accumulator's."""
    if not isinstance(argument, Ident):
        raise MacroError(argument.offset, message)
    if argument.name in (ACCUMULATOR, OLD_ACCUMULATOR):
        raise MacroError(argument.offset, "iteration variable overwrites accumulator variable")
    return argument.name


class MacroLoop(NamedTuple):
    """The variables of a loop, and the macro's further arguments (``rest``)."""

    target: Node
    var: str
    var2: str | None
    rest: Sequence[Node]


def _loop(target: Node | None, arguments: Sequence[Node], message: str = "argument must be a simple name") -> MacroLoop:
    assert target is not None
    return MacroLoop(target, variable(arguments[0], message), None, arguments[1:])


def _loop2(target: Node | None, arguments: Sequence[Node]) -> MacroLoop:
    assert target is not None
    for argument in arguments[:2]:
        if not isinstance(argument, Ident):
            raise MacroError(argument.offset, "argument must be a simple name")
    first, second = arguments[:2]
    assert isinstance(first, Ident)
    assert isinstance(second, Ident)
    if first.name == second.name:
        raise MacroError(second.offset, f"duplicate variable name: {first.name}")
    return MacroLoop(target, variable(first), variable(second), arguments[2:])


def _fold(at: int, loop: MacroLoop, init: Node, condition: Node, step: Node, result: Node) -> Node:
    return Comprehension(at, loop.target, loop.var, ACCUMULATOR, init, condition, step, result, loop.var2)


def _accu(at: int) -> Node:
    return Ident(at, ACCUMULATOR)


def _all(at: int, loop: MacroLoop) -> Node:
    condition = CallExpression(at, "@not_strictly_false", [_accu(at)])
    step = CallExpression(at, "_&&_", [_accu(at), loop.rest[0]])
    return _fold(at, loop, Literal(at, True), condition, step, _accu(at))


def _exists(at: int, loop: MacroLoop) -> Node:
    condition = CallExpression(at, "@not_strictly_false", [CallExpression(at, "!_", [_accu(at)])])
    step = CallExpression(at, "_||_", [_accu(at), loop.rest[0]])
    return _fold(at, loop, Literal(at, False), condition, step, _accu(at))


def _exists_one(at: int, loop: MacroLoop) -> Node:
    plus_one = CallExpression(at, "_+_", [_accu(at), Literal(at, 1)])
    step = CallExpression(at, "_?_:_", [loop.rest[0], plus_one, _accu(at)])
    result = CallExpression(at, "_==_", [_accu(at), Literal(at, 1)])
    return _fold(at, loop, Literal(at, 0), Literal(at, True), step, result)


def _collect(at: int, loop: MacroLoop, condition: Node | None, element: Node) -> Node:
    step: Node = CallExpression(at, "_+_", [_accu(at), ListNode(at, [element])])
    if condition is not None:
        step = CallExpression(at, "_?_:_", [condition, step, _accu(at)])
    return _fold(at, loop, ListNode(at, []), Literal(at, True), step, _accu(at))


def _map(at: int, loop: MacroLoop) -> Node:
    return _collect(at, loop, loop.rest[0] if len(loop.rest) == 2 else None, loop.rest[-1])


def _filter(at: int, loop: MacroLoop, variable: Node) -> Node:
    return _collect(at, loop, loop.rest[0], variable)


def _insert(at: int, loop: MacroLoop, *arguments: Node) -> Node:
    step: Node = CallExpression(at, "cel.@mapInsert", [_accu(at), *arguments])
    if len(loop.rest) == 2:
        step = CallExpression(at, "_?_:_", [loop.rest[0], step, _accu(at)])
    return _fold(at, loop, MapNode(at, []), Literal(at, True), step, _accu(at))


def _transform_map(at: int, loop: MacroLoop) -> Node:
    return _insert(at, loop, Ident(at, loop.var), loop.rest[-1])


def _transform_map_entry(at: int, loop: MacroLoop) -> Node:
    return _insert(at, loop, loop.rest[-1])


def _has(at: int, target: Node | None, arguments: Sequence[Node]) -> Node:
    argument = arguments[0]
    if not isinstance(argument, Select) or argument.test_only:
        raise MacroError(argument.offset, "invalid argument to has() macro")
    return Select(at, argument.operand, argument.field, test_only=True)


def _optional(name: str, wrap: bool) -> Macro:
    """Return optMap or optFlatMap: ``x.optMap(v, e)`` is ``optional.of(e)`` with x's value as v, if x has a value.

    ``wrap``: wrap ``e`` into ``optional.of``; False for optFlatMap.
    """

    def expand(at: int, target: Node | None, arguments: Sequence[Node]) -> Node:
        assert target is not None
        declared, body = arguments
        if not isinstance(declared, Ident):
            raise MacroError(declared.offset, f"{name}() variable name must be a simple identifier")
        kept = Keep(target)
        value = CallExpression(at, "value", [], KeptExpression(kept))
        bound: Node = Comprehension(
            at, ListNode(at, []), UNUSED, declared.name, value, Literal(at, False), Ident(at, declared.name), body
        )
        if wrap:
            bound = CallExpression(at, "optional.of", [bound])
        return CallExpression(
            at, "_?_:_", [CallExpression(at, "hasValue", [], kept), bound, CallExpression(at, "optional.none", [])]
        )

    return Macro(name, 2, True, expand)


def _one(name: str, arguments: int, make: Callable[[int, MacroLoop], Node], message: str = "") -> Macro:
    shown = message or "argument must be a simple name"
    return Macro(name, arguments, True, lambda at, target, args: make(at, _loop(target, args, shown)))


def _two(name: str, arguments: int, make: Callable[[int, MacroLoop], Node]) -> Macro:
    return Macro(name, arguments, True, lambda at, target, args: make(at, _loop2(target, args)))


_NO_NAME: Final = "argument is not an identifier"

STANDARD: Final = (
    Macro("has", 1, False, _has),
    _one("all", 2, _all),
    _one("exists", 2, _exists),
    _one("exists_one", 2, _exists_one),
    _one("existsOne", 2, _exists_one),
    _one("map", 2, _map, _NO_NAME),
    _one("map", 3, _map, _NO_NAME),
    Macro("filter", 2, True, lambda at, target, args: _filter(at, _loop(target, args, _NO_NAME), args[0])),
)
OPTIONAL: Final = (_optional("optMap", wrap=True), _optional("optFlatMap", wrap=False))
TWO_VARIABLES: Final = (
    _two("all", 3, _all),
    _two("exists", 3, _exists),
    _two("existsOne", 3, _exists_one),
    _two("exists_one", 3, _exists_one),
    *(_two("transformList", count, _map) for count in (3, 4)),
    *(_two("transformMap", count, _transform_map) for count in (3, 4)),
    *(_two("transformMapEntry", count, _transform_map_entry) for count in (3, 4)),
)
