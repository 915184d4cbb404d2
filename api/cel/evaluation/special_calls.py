"""Planning of calls that need no dispatch: operators and macros whose operands tell the function, with their costs.

Each planner returns None if a call has other operands; then calls.py chooses an overload.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from kubechronicle.api.cel.cost_spans import actual_size, traversal
from kubechronicle.api.cel.errors import CostExceeded, EvaluationError, no_such_overload
from kubechronicle.api.cel.evaluation.code import Closure, Code, ConstantError, Context, check_budget, constant
from kubechronicle.api.cel.operations.arithmetic import add_list
from kubechronicle.api.cel.operations.equality import equal
from kubechronicle.api.cel.operations.patterns import PatternError, compiled
from kubechronicle.api.cel.syntax import ast
from kubechronicle.api.cel.values import INT_MAX, INT_MIN, OptionalValue

_SCALARS: Final = frozenset({"int", "uint", "bool", "double", "timestamp", "duration", "null", "type"})
_SAME: Final = frozenset({"string", "int", "uint", "bool", "double", "bytes", "timestamp", "duration"})


def _fixed(args: Sequence[Code]) -> int:
    return sum(argument.cost for argument in args)


def _equality(node: ast.CallExpression, nodes: Sequence[ast.Node], args: Sequence[Code]) -> Code:
    negated = node.function == "_!=_"
    left, right = args[0].run, args[1].run
    kinds = nodes[0].type.kind, nodes[1].type.kind
    direct = kinds[0] == kinds[1] and kinds[0] in _SAME
    if kinds[0] in _SCALARS and kinds[1] in _SCALARS:
        if direct:
            same = operator.ne if negated else operator.eq
            return Code(lambda c: same(left(c), right(c)), _fixed(args) + 1)
        return Code(lambda c: equal(left(c), right(c)) is not negated, _fixed(args) + 1)
    if direct and kinds[0] == "string":
        return Code(_texts_equal(left, right, negated), _fixed(args))

    def run(c: Context) -> bool:
        first, second = left(c), right(c)
        c[1] += 1 if hasattr(first, "cel_type") else traversal(min(actual_size(first), actual_size(second)))
        return equal(first, second) is not negated

    return Code(run, _fixed(args))


def _texts_equal(left: Closure, right: Closure, negated: bool) -> Closure:
    def run(c: Context) -> bool:
        first, second = left(c), right(c)
        size = len(first) if len(first) < len(second) else len(second)
        c[1] += (size + 9) // 10
        return (first == second) is not negated

    return run


_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
_EXACT: Final = frozenset({"int", "uint", "timestamp", "duration"})


def _order(node: ast.CallExpression, nodes: Sequence[ast.Node], args: Sequence[Code]) -> Code | None:
    """Plan comparisons of whole numbers and times; return None for others, which are dispatched."""
    if nodes[0].type.kind not in _EXACT or len(node.overloads) != 1:
        return None
    if nodes[1].type.kind not in _EXACT:
        return None
    compare = _ORDER[node.function]
    left, right = args[0].run, args[1].run
    if args[1].constant:
        bound = args[1].value
        return Code(lambda c: compare(left(c), bound), _fixed(args) + 1)
    return Code(lambda c: compare(left(c), right(c)), _fixed(args) + 1)


def _add(node: ast.CallExpression, nodes: Sequence[ast.Node], args: Sequence[Code]) -> Code | None:
    left, right = args[0].run, args[1].run
    kinds = {argument.type.kind for argument in nodes}
    if kinds == {"int"}:

        def add(c: Context) -> int:
            total: int = left(c) + right(c)
            if INT_MIN <= total <= INT_MAX:
                return total
            raise EvaluationError("integer overflow")

        return Code(add, _fixed(args) + 1)
    if kinds == {"list"}:
        return Code(lambda c: add_list(left(c), right(c)), _fixed(args) + 1)
    return None


def _in(node: ast.CallExpression, nodes: Sequence[ast.Node], args: Sequence[Code]) -> Code | None:
    if len(node.overloads) != 1 or node.overloads[0].id != "in_list" or nodes[1].type.kind != "list":
        return None
    value, items = args
    if items.constant:
        found = _in_constant(value, items.value)
        if found is not None:
            return found
    sought, within = value.run, items.run

    def run(c: Context) -> bool:
        wanted, elements = sought(c), within(c)
        c[1] += len(elements)
        check_budget(c)
        if type(wanted) is str:
            return wanted in elements
        return any(equal(wanted, element) for element in elements)

    return Code(run, _fixed(args))


def _in_constant(value: Code, items: Sequence[Any]) -> Code | None:
    """Plan membership in a list of constants as a look-up in a set, which costs nothing."""
    if not items:
        return constant(False)
    if not all(isinstance(item, (str, int, float)) or item is None for item in items):
        return None
    sought = value.run
    if all(type(item) is str for item in items):
        texts = frozenset(items)

        def among_texts(c: Context) -> bool:
            wanted = sought(c)
            return type(wanted) is str and wanted in texts

        return Code(among_texts, value.cost)
    numbers = frozenset(item for item in items if type(item) is not bool)
    bools = frozenset(item for item in items if type(item) is bool)

    def among(c: Context) -> bool:
        wanted = sought(c)
        if type(wanted) is bool:
            return wanted in bools
        return isinstance(wanted, (str, int, float, type(None))) and wanted in numbers

    return Code(among, value.cost)


def _matches(node: ast.CallExpression, nodes: Sequence[ast.Node], args: Sequence[Code]) -> Code | None:
    """Plan a match with a constant pattern, which must be valid. None for any other."""
    if not args[1].constant or len(node.overloads) != 1 or nodes[0].type.kind != "string":
        return None
    pattern = args[1].value
    try:
        compiled(pattern)
    except PatternError as error:
        raise ConstantError(str(error)) from error

    def matches(text: str) -> bool:
        # Looked up each time: the patterns are bounded together, programs are not.
        try:
            return compiled(pattern).matches(text)
        except PatternError as error:
            raise EvaluationError(str(error)) from error

    text_of = args[0].run
    weight = (len(pattern) + 3) // 4
    if node.overloads[0].cost is None:
        return Code(lambda c: matches(text_of(c)), _fixed(args) + 1)

    def run(c: Context) -> bool:
        text = text_of(c)
        c[1] += traversal(len(text) + 1) * weight
        check_budget(c)
        return matches(text)

    return Code(run, _fixed(args))


def _not_strictly_false(node: ast.CallExpression, nodes: Sequence[ast.Node], args: Sequence[Code]) -> Code:
    value_of = args[0].run

    def run(c: Context) -> bool:
        try:
            return value_of(c) is not False
        except CostExceeded:
            raise
        except EvaluationError:
            return True

    return Code(run, args[0].cost + 1)


def _or(node: ast.CallExpression, nodes: Sequence[ast.Node], args: Sequence[Code]) -> Code:
    """Plan ``or`` and ``orValue``. They evaluate the second only if the first has no value, and cost nothing."""
    unwrap = node.function == "orValue"
    first, second = args[0].run, args[1].counted()

    def run(c: Context) -> Any:
        optional = first(c)
        if not isinstance(optional, OptionalValue):
            raise no_such_overload()
        if not optional.has_value:
            return second(c)
        return optional.value if unwrap else optional

    return Code(run, args[0].cost)


_Special = Callable[[ast.CallExpression, Sequence[ast.Node], Sequence[Code]], Code | None]

SPECIAL: Final[dict[str, _Special]] = {
    "_==_": _equality,
    "_!=_": _equality,
    **dict.fromkeys(_ORDER, _order),
    "_+_": _add,
    "@in": _in,
    "matches": _matches,
    "@not_strictly_false": _not_strictly_false,
    "or": _or,
    "orValue": _or,
}
