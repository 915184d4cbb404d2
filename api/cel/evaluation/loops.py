"""Planning of folds: a special loop for each form that macros expand to, a general loop for any other.

An iteration costs as much as cel-go charges for the expanded form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kubechronicle.api.cel.errors import CostExceeded, EvaluationError, no_such_overload
from kubechronicle.api.cel.evaluation.code import Closure, Code, Context, PlansParts, beyond, check_budget
from kubechronicle.api.cel.operations.equality import has_key
from kubechronicle.api.cel.syntax import ast
from kubechronicle.api.cel.types import CelType
from kubechronicle.api.cel.values import type_name

Elements = Callable[[Context], Iterable[None]]
"""Evaluates the range, then sets the variables and yields for each element. Iteration itself costs nothing."""

_GO_NAMES: Final = {
    "bool": "types.Bool",
    "bytes": "types.Bytes",
    "double": "types.Double",
    "int": "types.Int",
    "null_type": "types.Null",
    "string": "types.String",
    "uint": "types.Uint",
    "google.protobuf.Timestamp": "types.Timestamp",
    "google.protobuf.Duration": "types.Duration",
    "optional_type": "*types.Optional",
    "type": "*types.Type",
}
"""Names of types that are not iterable in cel-go's errors."""


def plan(planner: PlansParts, node: ast.Comprehension) -> Code:
    bound = _bound(planner, node)
    if bound is not None:
        return bound
    over = planner.plan(node.iter_range)
    first = planner.new_slot()
    second = planner.new_slot() if node.var2 else 0
    accu = planner.new_slot()
    elements = _elements(over.run, node, first, second)
    for recognize in (_quantifier, _count, _collected_list, _collected_map):
        body = recognize(planner, node, _Slots(node, first, second, accu), elements)
        if body is not None:
            return Code(body, over.cost)
    return Code(_general(planner, node, _Slots(node, first, second, accu), elements), over.cost)


class _Slots:
    """The slots of a fold's variables."""

    def __init__(self, node: ast.Comprehension, first: int, second: int, accu: int) -> None:
        self.accu = accu
        self.names = {node.var: first}
        if node.var2:
            self.names[node.var2] = second
        self.accu_name = {node.accu: accu}

    def plan(self, planner: PlansParts, node: ast.Node) -> Code:
        """Plan a part that is evaluated for each element."""
        planner.push(self.accu_name)
        planner.push(self.names)
        code = planner.plan(node)
        planner.pop()
        planner.pop()
        return code


def _bound(planner: PlansParts, node: ast.Comprehension) -> Code | None:
    """Plan a fold over nothing that names a value, as optMap makes it. The value is evaluated at the first use."""
    if not (isinstance(node.iter_range, ast.ListNode) and not node.iter_range.elements):
        return None
    accu = planner.new_slot()
    init = planner.plan(node.init).counted()
    planner.push({node.accu: -accu})
    body = planner.plan(node.result)
    planner.pop()
    run = body.run

    def evaluate(c: Context) -> Any:
        c[accu] = init
        return run(c)

    return Code(evaluate, body.cost)


def bound_variable(slot: int) -> Closure:
    """Return the reader of a lazy variable. Its slot holds a closure until the first use, then a `_Value`."""

    def run(c: Context) -> Any:
        held = c[slot]
        if type(held) is not _LoopValue:
            held = c[slot] = _LoopValue(held(c))
        return held.value

    return run


class _LoopValue:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


# -- elements ---------------------------------------------------------------------------------------------------------


def _elements(over: Closure, node: ast.Comprehension, first: int, second: int) -> Elements:
    of = node.iter_range.type
    read_first, read_second = _reads(of, bool(node.var2))
    if not node.var2:

        def each(c: Context) -> Iterable[None]:
            for element in _iterable(over(c)):
                c[first] = element if read_first is None else read_first(element)
                yield

        return each

    def each_pair(c: Context) -> Iterable[None]:
        for key, value in _pairs(over(c)):
            c[first] = key
            c[second] = value if read_second is None else read_second(value)
            yield

    return each_pair


_Read = Callable[[Any], Any] | None


def _reads(of: CelType, pairs: bool) -> tuple[_Read, _Read]:
    if of.kind == "list":
        read = of.parameters[0].read
        return (None, read) if pairs else (read, None)
    return (None, of.parameters[1].read) if of.kind == "map" else (None, None)


def _iterable(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple, dict)):
        return value
    name = type_name(value)
    raise EvaluationError(f"got '{_GO_NAMES.get(name, name)}', expected iterable type")


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, (list, tuple)):
        return enumerate(value)
    name = type_name(value)
    raise EvaluationError(f"unsupported comprehension range type: {_GO_NAMES.get(name, name)}")


# -- forms ------------------------------------------------------------------------------------------------------------


def _is_accu(node: ast.Node, fold: ast.Comprehension) -> bool:
    return isinstance(node, ast.Ident) and node.name == fold.accu


def _quantifier(planner: PlansParts, node: ast.Comprehension, slots: _Slots, elements: Elements) -> Closure | None:
    """Plan all and exists. The loop stops at an element that decides; errors count only if none does."""
    step = node.step
    if not (
        isinstance(step, ast.CallExpression) and step.function in ("_&&_", "_||_") and _is_accu(step.args[0], node)
    ):
        return None
    if not isinstance(node.condition, ast.CallExpression) or len(step.args) != 2 or not _is_accu(node.result, node):
        return None
    absorbing = step.function == "_||_"
    predicate = slots.plan(planner, step.args[1])
    test = predicate.run
    condition_cost = 3 if absorbing else 2
    each_cost = condition_cost + 1 + predicate.cost

    def run(c: Context) -> bool:
        failed: EvaluationError | None = None
        decided = False
        for _ in elements(c):
            if decided:
                c[1] += condition_cost
                break
            c[1] += each_cost
            if c[1] > c[2]:
                beyond(c)
            try:
                value = test(c)
            except CostExceeded:
                raise
            except EvaluationError as error:
                failed = failed or error
                continue
            if value is absorbing:
                decided = True
            elif value is not True and value is not False:
                failed = failed or no_such_overload()
        c[1] += 1
        if decided:
            return absorbing
        if failed is not None:
            raise failed
        return not absorbing

    return run


def _branches(step: ast.Node, node: ast.Comprehension) -> tuple[ast.Node | None, ast.Node]:
    """Return (condition, done) of a step ``condition ? done : accu``, (None, the step) of any other step."""
    if isinstance(step, ast.CallExpression) and step.function == "_?_:_" and _is_accu(step.args[2], node):
        return step.args[0], step.args[1]
    return None, step


def _count(planner: PlansParts, node: ast.Comprehension, slots: _Slots, elements: Elements) -> Closure | None:
    """Plan exists_one."""
    condition, done = _branches(node.step, node)
    if condition is None or not isinstance(node.init, ast.Literal) or not isinstance(done, ast.CallExpression):
        return None
    result = node.result
    if done.function != "_+_" or not isinstance(result, ast.CallExpression) or result.function != "_==_":
        return None
    predicate = slots.plan(planner, condition)
    test, cost = predicate.run, predicate.cost

    def run(c: Context) -> bool:
        count = 0
        for _ in elements(c):
            c[1] += cost
            if _holds(c, test):
                c[1] += 2
                count += 1
        c[1] += 2
        return count == 1

    return run


def _holds(c: Context, test: Closure) -> bool:
    if c[1] > c[2]:
        beyond(c)
    value = test(c)
    if value is True or value is False:
        return bool(value)
    raise no_such_overload()


def _always(_: Context) -> bool:
    return True


def _collected_list(planner: PlansParts, node: ast.Comprehension, slots: _Slots, elements: Elements) -> Closure | None:
    """Plan map, filter and transformList, which make a list."""
    if not (isinstance(node.init, ast.ListNode) and not node.init.elements and _is_accu(node.result, node)):
        return None
    condition, done = _branches(node.step, node)
    if not (isinstance(done, ast.CallExpression) and done.function == "_+_" and _is_accu(done.args[0], node)):
        return None
    added = done.args[1]
    if not isinstance(added, ast.ListNode) or len(added.elements) != 1 or added.optional:
        return None
    tested = None if condition is None else slots.plan(planner, condition)
    element = slots.plan(planner, added.elements[0])
    test, test_cost = (_always, 0) if tested is None else (tested.run, tested.cost)
    make = element.run
    cost = element.cost + 2 + (0 if element.constant else 10)

    def run(c: Context) -> list[Any]:
        collected: list[Any] = []
        for _ in elements(c):
            c[1] += test_cost
            if _holds(c, test):
                c[1] += cost
                collected.append(make(c))
        c[1] += 1
        return collected

    return run


def _collected_map(planner: PlansParts, node: ast.Comprehension, slots: _Slots, elements: Elements) -> Closure | None:
    """Plan transformMap and transformMapEntry, which make a map."""
    if not (isinstance(node.init, ast.MapNode) and not node.init.entries and _is_accu(node.result, node)):
        return None
    condition, done = _branches(node.step, node)
    if not (
        isinstance(done, ast.CallExpression) and done.function == "cel.@mapInsert" and _is_accu(done.args[0], node)
    ):
        return None
    tested = None if condition is None else slots.plan(planner, condition)
    parts = [slots.plan(planner, part) for part in done.args[1:]]
    test, test_cost = (_always, 0) if tested is None else (tested.run, tested.cost)
    runs = [part.run for part in parts]
    cost = sum(part.cost for part in parts) + 2

    def run(c: Context) -> dict[Any, Any]:
        collected: dict[Any, Any] = {}
        for _ in elements(c):
            c[1] += test_cost
            if _holds(c, test):
                c[1] += cost
                values = [part(c) for part in runs]
                _insert(collected, {values[0]: values[1]} if len(values) == 2 else values[0])
        c[1] += 1
        return collected

    return run


def _insert(collected: dict[Any, Any], entries: Any) -> None:
    if not isinstance(entries, dict):
        raise no_such_overload("cel.@mapInsert", "map", type_name(entries))
    for key, value in entries.items():
        if has_key(collected, key):
            raise EvaluationError(f"insert failed: key {key} already exists")
        collected[key] = value


def _general(planner: PlansParts, node: ast.Comprehension, slots: _Slots, elements: Elements) -> Closure:
    """Plan any other fold."""
    init = planner.plan(node.init).counted()
    condition = slots.plan(planner, node.condition).counted()
    step = slots.plan(planner, node.step).counted()
    planner.push(slots.accu_name)
    result = planner.plan(node.result).counted()
    planner.pop()
    accu = slots.accu

    def run(c: Context) -> Any:
        c[accu] = init(c)
        for _ in elements(c):
            check_budget(c)
            if condition(c) is not True:
                break
            c[accu] = step(c)
        return result(c)

    return run
