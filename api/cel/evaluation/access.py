"""Access to fields, entries and elements: plain, optional, and tests of presence.

Source: cel-go ``interpreter/attributes.go``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubechronicle.api.cel.errors import EvaluationError, no_such_key
from kubechronicle.api.cel.evaluation.code import Closure, Code, Context, PlansParts
from kubechronicle.api.cel.operations.conversions import double_to_string
from kubechronicle.api.cel.operations.equality import has_key
from kubechronicle.api.cel.syntax import ast
from kubechronicle.api.cel.types import CelField, CelType, unwrap_optional
from kubechronicle.api.cel.values import NONE, OptionalValue, UInt, type_name

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
