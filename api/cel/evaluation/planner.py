"""The planner: from a checked tree to closures. See code.py for their context and costs.

Access to fields, entries and elements: plain, optional, and tests of presence.

Source: cel-go ``interpreter/attributes.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.cel.cost_spans import LIST_CREATE, MAP_CREATE, STRUCT_CREATE
from kubechronicle.api.cel.errors import EvaluationError, no_such_key, no_such_overload
from kubechronicle.api.cel.evaluation import calls, loops
from kubechronicle.api.cel.evaluation.code import (
    SLOTS,
    Closure,
    Code,
    ConstantError,
    Context,
    PlansParts,
    conditional,
    constant,
    logic,
)
from kubechronicle.api.cel.operations.conversions import double_to_string
from kubechronicle.api.cel.operations.equality import has_key
from kubechronicle.api.cel.syntax import ast
from kubechronicle.api.cel.types import CelField, CelType, unwrap_optional
from kubechronicle.api.cel.values import NONE, ObjectValue, OptionalValue, UInt, type_name
from kubechronicle.api.values.allowance import constant_context

_ABSENT: Final = object()


def find(operand: Any, key: Any) -> Any:
    """Return the field, entry or element of this key or index, _ABSENT if there is none.

    EvaluationError for a list index that is no number.
    """
    if isinstance(operand, dict):
        return operand[key] if has_key(operand, key) else _ABSENT
    if isinstance(operand, (list, tuple)):
        index = _list_index(key)
        return operand[index] if 0 <= index < len(operand) else _ABSENT
    return _ABSENT


def _list_index(key: Any) -> int:
    kind = type(key)
    if kind is int or kind is UInt:
        return int(key)
    if kind is float:
        if key == key and abs(key) < 2**63 and key == int(key):
            return int(key)
        raise EvaluationError(f"unsupported index value {double_to_string(key)} in list")
    raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")


def shown(key: Any) -> str:
    """Return a key as shown in errors."""
    if key is True or key is False:
        return "true" if key else "false"
    if isinstance(key, int):
        return str(int(key))
    return double_to_string(key) if isinstance(key, float) else str(key)


def get(operand: Any, key: Any) -> Any:
    """Return ``operand[key]``; an optional if the operand is one. EvaluationError if it does not exist."""
    if isinstance(operand, OptionalValue):
        return get_optional(operand, key)
    found = find(operand, key)
    if found is not _ABSENT:
        return found
    if isinstance(operand, (list, tuple)):
        raise EvaluationError(f"index out of bounds: {shown(key)}")
    raise no_such_key(shown(key))


def get_optional(operand: Any, key: Any) -> OptionalValue:
    """Return ``operand[key]`` as an optional; unwrap an optional operand first."""
    if isinstance(operand, OptionalValue):
        if not operand.has_value:
            return NONE
        operand = operand.value
    found = find(operand, key)
    if found is _ABSENT:
        return NONE
    return found if isinstance(found, OptionalValue) else OptionalValue(found)


def present(operand: Any, key: str) -> bool:
    """Return whether the operand, or the value of an optional one, has the key."""
    if isinstance(operand, OptionalValue):
        return operand.has_value and present(operand.value, key)
    return find(operand, key) is not _ABSENT


# -- planning ---------------------------------------------------------------------------------------------------------


def select(planner: PlansParts, node: ast.Select) -> Code:
    operand = planner.plan(node.operand)
    if not node.field:  # a dotted name that the checker found declared as a whole
        return operand
    field = _field(node.operand.type, node.field)
    base = operand.base if operand.attribute else 1
    cost = operand.cost + 1 + (0 if operand.attribute else 1)
    if node.test_only:
        return Code(_test(operand.run, field.name), cost - base, attribute=True)
    return Code(_reading(_selecting(operand.run, field), node.type), cost, attribute=True, base=base)


def _field(of: CelType, name: str) -> CelField:
    """Return the field with its name in the data."""
    return unwrap_optional(of)[0].field(name) or CelField(of, name)


def _selecting(operand: Closure, field: CelField) -> Closure:
    name, default, has_default = field.name, field.default, field.has_default

    def run(c: Context) -> Any:
        value = operand(c)
        try:
            return value[name]
        except (KeyError, TypeError):
            if has_default and isinstance(value, dict):
                return default
            return get(value, name)

    return run


def _test(operand: Closure, name: str) -> Closure:
    def run(c: Context) -> bool:
        value = operand(c)
        if type(value) is dict:
            return name in value
        return present(value, name)

    return run


def _reading(run: Closure, of: CelType) -> Closure:
    """Convert data as their type demands, also within an optional."""
    read = unwrap_optional(of)[0].read
    if read is None:
        return run
    return lambda c: _read(run(c), read)


def _read(value: Any, read: Callable[[Any], Any]) -> Any:
    if isinstance(value, OptionalValue):
        return OptionalValue(read(value.value)) if value.has_value else value
    return read(value)


def optional_select(planner: PlansParts, node: ast.CallExpression) -> Code:
    field = node.args[1]
    assert isinstance(field, ast.Literal)
    name = _field(node.args[0].type, field.value).name
    operand = planner.plan(node.args[0])
    return _optional(operand, lambda _: name, 0, node.type)


def index(planner: PlansParts, node: ast.CallExpression) -> Code:
    operand = planner.plan(node.args[0])
    key = planner.plan(node.args[1])
    # An index that is itself a chain does not pay for the beginning of its chain.
    key_cost = key.cost - key.base
    if node.function == "_[?_]":
        return _optional(operand, key.run, key_cost, node.type)
    base = operand.base if operand.attribute else 1
    cost = operand.cost + key_cost + 1 + (0 if operand.attribute else 1)
    if key.constant and isinstance(key.value, str):
        run = _selecting(operand.run, CelField(node.type, key.value))
    else:
        run = _indexing(operand.run, key.run)
    return Code(_reading(run, node.type), cost, attribute=True, base=base)


def _indexing(operand: Closure, key: Closure) -> Closure:
    def run(c: Context) -> Any:
        value = operand(c)
        index = key(c)
        if type(index) is int and type(value) is list and 0 <= index < len(value):
            return value[index]
        return get(value, index)

    return run


def _optional(operand: Code, key: Closure, key_cost: int, of: CelType) -> Code:
    """Plan an optional selection or index. It costs 1 less if there is no value."""
    value_of = operand.run

    def run(c: Context) -> OptionalValue:
        found = get_optional(value_of(c), key(c))
        if found.has_value:
            c[1] += 1
        return found

    base = operand.base if operand.attribute else 1
    cost = operand.cost + key_cost + (0 if operand.attribute else 1)
    return Code(_reading(run, of), cost, attribute=True, base=base)


_ACCESS: Final = {"_?._": optional_select, "_[_]": index, "_[?_]": index}


class ExpressionPlanner:
    """Plans one tree. ``types``: the types an expression may construct."""

    def __init__(self, types: Mapping[str, CelType]) -> None:
        self._types = types
        self._scopes: list[dict[str, int]] = []
        self.slots = 0
        self._plans: dict[type[ast.Node], Callable[[Any], Code]] = {
            ast.Literal: lambda node: constant(node.value),
            ast.Ident: self._ident,
            ast.Select: lambda node: select(self, node),
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
