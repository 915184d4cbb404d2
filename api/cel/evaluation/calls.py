"""Planning of calls: the choice of the overload, and the costs. Calls without a choice: special_calls.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kubechronicle.api.cel.errors import EvaluationError, no_such_overload
from kubechronicle.api.cel.evaluation.code import Closure, Code, ConstantError, Context, PlansParts, beyond, constant
from kubechronicle.api.cel.evaluation.special_calls import SPECIAL
from kubechronicle.api.cel.operations.arithmetic import COMPARISONS
from kubechronicle.api.cel.syntax import ast
from kubechronicle.api.cel.types import CelType, Overload, RuntimeCost
from kubechronicle.api.cel.values import PLAIN, type_name
from kubechronicle.api.values.allowance import constant_context

# -- values of unknown type -------------------------------------------------------------------------------------------


def _guard(of: CelType) -> Callable[[Any], bool] | None:
    """Return a test for values of a type, as far as values know their types. None if any value passes."""
    if of.kind in ("dyn", "any", "param", "error"):
        return None
    name = of.name
    if of.kind == "struct":
        return lambda value: isinstance(value, dict) or type_name(value) == name
    return lambda value: type_name(value) == name


def _certain(of: CelType) -> bool:
    """Return whether a value of this static type certainly has it at run time."""
    return of.kind not in ("dyn", "any", "param", "error", "null")


_Candidate = tuple[Sequence[Callable[[Any], bool] | None], Overload]


def _dispatch(name: str, candidates: Sequence[_Candidate]) -> Callable[[Sequence[Any]], Overload]:
    """Return the function that finds the overload for values. It caches the overload by the values' Python types."""
    known: dict[tuple[type, ...], Overload] = {}

    def choose(values: Sequence[Any]) -> Overload:
        kinds = tuple(map(type, values))
        overload = known.get(kinds)
        if overload is None:
            overload = search(values)
            if PLAIN.issuperset(kinds):
                known[kinds] = overload
        return overload

    def search(values: Sequence[Any]) -> Overload:
        for guards, overload in candidates:
            for guard, value in zip(guards, values, strict=True):
                if guard is not None and not guard(value):
                    break
            else:
                return overload
        raise _refused(name, values)

    return choose


_RECEIVERS: Final = frozenset({"string", "google.protobuf.Timestamp", "google.protobuf.Duration"})
_ADDED: Final = frozenset({"bytes", "double", "int", "list", "uint", *_RECEIVERS})
_COMPARED: Final = frozenset({"bool", "bytes", "double", "int", "uint", *_RECEIVERS})
_COUNTED: Final = frozenset({"double", "int", "uint", *_RECEIVERS})
_ABLE: Final[dict[str, frozenset[str]]] = {
    "_+_": _ADDED,
    "_-_": _COUNTED,
    "_*_": _COUNTED,
    "_/_": _COUNTED,
    "_%_": _COUNTED - {"double"},
    "-_": _COUNTED | {"bool"},
    **dict.fromkeys(COMPARISONS, _COMPARED),
    "size": frozenset({"bytes", "list", "map", *_RECEIVERS}),
    "matches": _RECEIVERS,
}
"""Types that have an operation, perhaps not with these arguments: cel-go's error differs for them."""
_UNNAMED: Final = frozenset({"!_", "@in", "contains", "startsWith", "endsWith"})


def _refused(name: str, values: Sequence[Any]) -> EvaluationError:
    """Return the error for values that no overload takes, in one of cel-go's three forms."""
    kinds = [type_name(value) for value in values]
    able = _ABLE.get(name)
    if name in _UNNAMED or (able is not None and kinds[0] in able):
        return no_such_overload()
    if able is not None:
        return EvaluationError(f"no such overload: {name}")
    return no_such_overload(name, *kinds)


# -- calls ------------------------------------------------------------------------------------------------------------


def call(planner: PlansParts, node: ast.CallExpression) -> Code:
    nodes = [node.target, *node.args] if node.target is not None else node.args
    args = [planner.plan(argument) for argument in nodes]
    special = SPECIAL.get(node.function)
    if special is not None:
        found = special(node, nodes, args)
        if found is not None:
            return found
    overloads = node.overloads
    if len(overloads) == 1 and all(
        _certain(argument.type) or _guard(declared) is None
        for argument, declared in zip(nodes, overloads[0].args, strict=True)
    ):
        found = _direct(overloads[0], args)
    else:
        found = _dynamic(node, overloads, args)
    if node.function in _CONVERSIONS and len(args) == 1 and args[0].constant:
        return _folded(found)
    return found


def _folded(code: Code) -> Code:
    try:
        return constant(code.run(constant_context()))
    except EvaluationError as error:
        raise ConstantError(str(error)) from error


_CONVERSIONS: Final = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "uint"})


def _direct(overload: Overload, args: list[Code]) -> Code:
    """Plan a call of a known overload."""
    function, cost = overload.call, overload.cost
    fixed = sum(argument.cost for argument in args)
    runs = [argument.run for argument in args]
    if cost is not None:
        return Code(_weighed(_costed(function, cost, runs), overload.weight), fixed)
    fixed += 1
    if overload.weight:
        return Code(_weighed(lambda c: function(*[run(c) for run in runs]), overload.weight), fixed)
    if len(runs) == 1:
        only = runs[0]
        return Code(lambda c: function(only(c)), fixed)
    if len(runs) == 2:
        first, second = runs
        return Code(lambda c: function(first(c), second(c)), fixed)
    return Code(lambda c: function(*[run(c) for run in runs]), fixed)


def _weighed(run: Closure, weight: int) -> Closure:
    """Let the next check come earlier, by the weight of a function that takes longer than its cost says."""
    if not weight:
        return run

    def weighed(c: Context) -> Any:
        c[2] -= weight
        if c[1] > c[2]:
            beyond(c)
        return run(c)

    return weighed


def _costed(function: Callable[..., Any], cost: RuntimeCost, runs: Sequence[Closure]) -> Closure:
    def run(c: Context) -> Any:
        values = [argument(c) for argument in runs]
        result = function(*values)
        c[1] += cost(values, result)
        if c[1] > c[2]:
            beyond(c)
        return result

    return run


def _dynamic(node: ast.CallExpression, overloads: Sequence[Overload], args: list[Code]) -> Code:
    """Plan a call that finds its overload by the values."""
    candidates = [([_guard(declared) for declared in overload.args], overload) for overload in overloads]
    choose = _dispatch(node.function, candidates)
    runs = [argument.run for argument in args]
    single = len(overloads) == 1  # cel-go charges by the overload only if the checker knew it
    cost_of = overloads[0].cost if single else None

    def run(c: Context) -> Any:
        values = [argument(c) for argument in runs]
        overload = choose(values)
        c[2] -= overload.weight
        result = overload.call(*values)
        c[1] += 1 if cost_of is None else cost_of(values, result)
        if c[1] > c[2]:
            beyond(c)
        return result

    return Code(run, sum(argument.cost for argument in args))
