"""Random expressions of arithmetic, comparison and logic, compared with a simple interpreter."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubechronicle.api.cel import EvaluationError, base_environment
from kubechronicle.api.cel.types import BOOL, DOUBLE, INT, UINT
from kubechronicle.api.cel.values import UInt

Tree = tuple[Any, ...]
"""(type, operator, operands…), or (type, "value", value), or (type, "variable", name)."""

RANGES = {"int": (-(2**63), 2**63 - 1), "uint": (0, 2**64 - 1)}
VARIABLES = {"i": INT, "u": UINT, "f": DOUBLE, "b": BOOL}


class Failed(Exception):
    pass


def leaves(kind: str) -> st.SearchStrategy[Tree]:
    values: dict[str, st.SearchStrategy[Any]] = {
        "int": st.sampled_from([0, 1, -1, 2, 7, 2**62, 2**63 - 1, -(2**63)]) | st.integers(-100, 100),
        "uint": st.sampled_from([0, 1, 2, 2**63, 2**64 - 1]) | st.integers(0, 100),
        "double": st.sampled_from([0.0, 1.0, -0.5, 1e300, 2.0**63]) | st.floats(-1e6, 1e6),
        "bool": st.booleans(),
    }
    name = {"int": "i", "uint": "u", "double": "f", "bool": "b"}[kind]
    constant = values[kind].map(lambda value: (kind, "value", value))
    return constant | st.just((kind, "variable", name))


def arithmetic(kind: str, inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    operators = ["+", "-", "*", "/"] if kind == "double" else ["+", "-", "*", "/", "%"]
    return st.tuples(st.just(kind), st.sampled_from(operators), inner, inner)


def numbers(kind: str) -> st.SearchStrategy[Tree]:
    return st.recursive(leaves(kind), lambda inner: arithmetic(kind, inner), max_leaves=4)


NUMBERS = numbers("int") | numbers("uint") | numbers("double")
ORDERED = st.tuples(st.just("bool"), st.sampled_from(["<", "<=", ">", ">="]), NUMBERS, NUMBERS)
EQUAL = st.sampled_from(["int", "uint", "double"]).flatmap(
    lambda kind: st.tuples(st.just("bool"), st.sampled_from(["==", "!="]), numbers(kind), numbers(kind))
)


def logic(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return (
        st.tuples(st.just("bool"), st.sampled_from(["&&", "||"]), inner, inner)
        | st.tuples(st.just("bool"), st.just("!"), inner)
        | st.tuples(st.just("bool"), st.just("?:"), inner, inner, inner)
    )


CONDITIONS = st.recursive(leaves("bool") | ORDERED | EQUAL, logic, max_leaves=6)


def written(tree: Tree) -> str:
    kind, operator, *operands = tree
    if operator == "variable":
        return str(operands[0])
    if operator == "value":
        value = operands[0]
        if kind == "bool":
            return "true" if value else "false"
        return f"{value}u" if kind == "uint" else repr(float(value)) if kind == "double" else str(value)
    parts = [written(operand) for operand in operands]
    if operator == "!":
        return f"!({parts[0]})"
    if operator == "?:":
        return f"(({parts[0]}) ? ({parts[1]}) : ({parts[2]}))"
    return f"(({parts[0]}) {operator} ({parts[1]}))"


def interpreted(tree: Tree, variables: dict[str, Any]) -> Any:
    kind, operator, *operands = tree
    if operator == "value":
        return operands[0]
    if operator == "variable":
        return variables[operands[0]]
    if operator in ("&&", "||"):
        return both(operator == "||", *(outcome(operand, variables) for operand in operands))
    if operator == "?:":
        return interpreted(operands[1 if interpreted(operands[0], variables) else 2], variables)
    values = [interpreted(operand, variables) for operand in operands]
    if operator == "!":
        return not values[0]
    if operator in ("==", "!="):
        return (values[0] == values[1]) is (operator == "==")
    if kind == "bool":
        return ordered(operator, *values)
    return calculated(kind, operator, *values)


def outcome(tree: Tree, variables: dict[str, Any]) -> Any:
    try:
        return interpreted(tree, variables)
    except Failed as error:
        return error


def both(absorbing: bool, left: Any, right: Any) -> bool:
    if left is absorbing or right is absorbing:
        return absorbing
    for value in (left, right):
        if isinstance(value, Failed):
            raise value
    return not absorbing


def ordered(operator: str, left: Any, right: Any) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if math.isnan(left) or math.isnan(right):
            raise Failed("NaN values cannot be ordered")
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator])


def calculated(kind: str, operator: str, left: Any, right: Any) -> Any:
    if kind == "double":
        return floating(operator, left, right)
    if operator in "/%" and right == 0:
        raise Failed("division by zero" if operator == "/" else "modulus by zero")
    if operator in "/%":
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        result = quotient if operator == "/" else left - quotient * right
        if kind == "int" and left == -(2**63) and right == -1:
            result = 2**63
    else:
        result = {"+": left + right, "-": left - right, "*": left * right}[operator]
    low, high = RANGES[kind]
    if not low <= result <= high:
        raise Failed("integer overflow" if kind == "int" else "unsigned integer overflow")
    return result


def floating(operator: str, left: float, right: float) -> float:
    if operator != "/":
        return {"+": left + right, "-": left - right, "*": left * right}[operator]
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


ENVIRONMENT = base_environment().extend(variables=VARIABLES)


@settings(max_examples=100, deadline=None)
@given(
    CONDITIONS | NUMBERS,
    st.fixed_dictionaries(
        {
            "i": st.integers(*RANGES["int"]) | st.integers(-3, 3),
            "u": st.integers(*RANGES["uint"]) | st.integers(0, 3),
            "f": st.floats(),
            "b": st.booleans(),
        }
    ),
)
def test_results_equal_the_interpreters(tree: Tree, variables: dict[str, Any]) -> None:
    program = ENVIRONMENT.compile(written(tree))
    wanted = outcome(tree, variables)
    try:
        found = program.evaluate({**variables, "u": UInt(variables["u"])})
    except EvaluationError as error:
        found = str(error)
    if isinstance(found, str) or isinstance(wanted, Failed):
        assert found == str(wanted)
        return
    assert found == wanted or (math.isnan(found) and math.isnan(wanted))
    assert isinstance(found, UInt) is (tree[0] == "uint")
