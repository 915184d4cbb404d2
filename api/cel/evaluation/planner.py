"""The planner: from a checked tree to closures. See code.py for their context and costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.cel.costs.cost_spans import LIST_CREATE, MAP_CREATE, STRUCT_CREATE
from kubechronicle.api.cel.errors import EvaluationError, no_such_overload
from kubechronicle.api.cel.evaluation import access, calls, loops
from kubechronicle.api.cel.evaluation.code import (
    SLOTS,
    Closure,
    Code,
    ConstantError,
    Context,
    conditional,
    constant,
    logic,
)
from kubechronicle.api.cel.operations.equality import has_key
from kubechronicle.api.cel.syntax import ast
from kubechronicle.api.cel.types import CelType
from kubechronicle.api.cel.values import ObjectValue, OptionalValue, type_name
from kubechronicle.api.values.allowance import constant_context

_ACCESS: Final = {"_?._": access.optional_select, "_[_]": access.index, "_[?_]": access.index}


class ExpressionPlanner:
    """Plans one tree. ``types``: the types an expression may construct."""

    def __init__(self, types: Mapping[str, CelType]) -> None:
        self._types = types
        self._scopes: list[dict[str, int]] = []
        self.slots = 0
        self._plans: dict[type[ast.Node], Callable[[Any], Code]] = {
            ast.Literal: lambda node: constant(node.value),
            ast.Ident: self._ident,
            ast.Select: lambda node: access.select(self, node),
            ast.CallExpression: self._call,
            ast.ListNode: self._list,
            ast.MapNode: self._map,
            ast.StructNode: self._struct,
            ast.Comprehension: lambda node: loops.plan(self, node),
            ast.Keep: self._keep,
            ast.KeptExpression: self._kept,
        }

    def plan(self, node: ast.Node) -> Code:
        """Return the code of a part. ConstantError if the conversion of a constant fails."""
        return self._plans[type(node)](node)

    def new_slot(self) -> int:
        self.slots += 1
        return SLOTS + self.slots - 1

    def push(self, names: dict[str, int]) -> None:
        self._scopes.append(names)

    def pop(self) -> None:
        self._scopes.pop()

    def _ident(self, node: ast.Ident) -> Code:
        if node.constant:
            return constant(node.value)
        name = node.name
        if name.startswith("."):
            return Code(_variable(name[1:]), 1, attribute=True, base=1)
        slot = next(names[name] for names in reversed(self._scopes) if name in names)
        run = loops.bound_variable(-slot) if slot < 0 else _local(slot)
        return Code(run, 1, attribute=True, base=1)

    def _call(self, node: ast.CallExpression) -> Code:
        function = node.function
        if function in _ACCESS:
            return _ACCESS[function](self, node)
        if function == "_?_:_":
            condition, first, second = map(self.plan, node.args)
            return conditional(condition, first, second)
        if function in ("_&&_", "_||_"):
            return logic([self.plan(term) for term in node.args], absorbing=function == "_||_")
        return calls.call(self, node)

    def _keep(self, node: ast.Keep) -> Code:
        """Plan a part and keep its value and cost for `_kept`."""
        slot = node.slot = self.new_slot()
        code = self.plan(node.node)
        run, fixed = code.run, code.cost

        def keep(c: Context) -> Any:
            before = c[1]
            value = run(c)
            c[slot] = value, c[1] - before + fixed
            return value

        return Code(keep, fixed, attribute=code.attribute, base=code.base)

    def _kept(self, node: ast.KeptExpression) -> Code:
        slot = node.keep.slot

        def kept(c: Context) -> Any:
            value, cost = c[slot]
            c[1] += cost
            return value

        return Code(kept)

    # -- constructed values -------------------------------------------------------------------------------------------

    def _list(self, node: ast.ListNode) -> Code:
        parts = [self.plan(element) for element in node.elements]
        if all(part.constant for part in parts) and not node.optional:
            return constant([part.value for part in parts])
        runs = [part.run for part in parts]
        cost = sum(part.cost for part in parts) + LIST_CREATE
        if not node.optional:
            return Code(lambda c: [run(c) for run in runs], cost)
        flagged = [(run, index in node.optional) for index, run in enumerate(runs)]

        def build(c: Context) -> list[Any]:
            elements = []
            for run, optional in flagged:
                value = run(c)
                if optional:
                    if not isinstance(value, OptionalValue):
                        raise EvaluationError(
                            f"cannot initialize optional list element from non-optional value {value}"
                        )
                    if not value.has_value:
                        continue
                    value = value.value
                elements.append(value)
            return elements

        return Code(build, cost)

    def _map(self, node: ast.MapNode) -> Code:
        rows = [(self.plan(entry.key), self.plan(entry.value), entry.optional) for entry in node.entries]
        build = _mapping([(key.run, value.run, optional) for key, value, optional in rows])
        if all(key.constant and value.constant for key, value, _ in rows):
            try:
                return constant(build(constant_context()))
            except EvaluationError as error:
                raise ConstantError(str(error)) from error
        return Code(build, sum(key.cost + value.cost for key, value, _ in rows) + MAP_CREATE)

    def _struct(self, node: ast.StructNode) -> Code:
        of = self._types[node.name.removeprefix(".")]
        rows = []
        cost = STRUCT_CREATE
        for entry in node.entries:
            code = self.plan(entry.value)
            cost += code.cost
            field = of.field(entry.key)
            rows.append((constant(field.name if field else entry.key).run, code.run, entry.optional))
        build = _mapping(rows)
        return Code(lambda c: ObjectValue(of, build(c)), cost)


def _variable(name: str) -> Closure:
    def run(c: Context) -> Any:
        try:
            return c[0][name]
        except KeyError:
            raise EvaluationError(f"no such attribute(s): {name}") from None

    return run


def _local(slot: int) -> Closure:
    return lambda c: c[slot]


_KEYS: Final = frozenset({"bool", "int", "uint", "string", "double"})


def _mapping(rows: list[tuple[Closure, Closure, bool]]) -> Callable[[Context], dict[Any, Any]]:
    def build(c: Context) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        for key_of, value_of, optional in rows:
            key = key_of(c)
            value = value_of(c)
            if type(key) is not str:
                _check_key(key)
            if optional:
                if not isinstance(value, OptionalValue):
                    raise EvaluationError(f"cannot initialize optional entry '{key}' from non-optional value {value}")
                if not value.has_value:
                    entries.pop(key, None)
                    continue
                value = value.value
            if type(key) is not str and key in entries and not has_key(entries, key):
                raise EvaluationError("unsupported key type: a map cannot have both a bool and the number equal to it")
            entries[key] = value
        return entries

    return build


def _check_key(key: Any) -> None:
    if type_name(key) not in _KEYS:
        raise no_such_overload()
