"""Costs of evaluations: those of cel-go's cost tracker with constants folded, as in k8s.io/apiserver."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.cel import CostExceeded, base_environment
from kubechronicle.api.cel.types import BOOL, BYTES, DYN, INT, STRING, TIMESTAMP, CelType, list_of, map_of, object_type
from kubechronicle.api.cel.values import Timestamp

OBJECT = object_type("Object", {"single": INT, "text": STRING})
LONG = "x" * 500
FALSES: dict[str, tuple[CelType, Any]] = dict.fromkeys("abcd", (BOOL, False))

CASES: list[tuple[str, dict[str, tuple[CelType, Any]], int]] = [
    ('"Hello World!"', {}, 0),
    ("input", {"input": (list_of(INT), [1, 2])}, 1),
    ("input['key']", {"input": (map_of(STRING, STRING), {"key": "v"})}, 2),
    ("input[0]", {"input": (list_of(STRING), ["v"])}, 2),
    ("input.single", {"input": (OBJECT, {"single": 1})}, 2),
    ("input['ke' + 'y']", {"input": (map_of(STRING, STRING), {"key": "v"})}, 3),
    ("input[3-3]", {"input": (list_of(STRING), ["v"])}, 3),
    ("has(input.single)", {"input": (OBJECT, {})}, 1),
    ("has(input.a.b)", {"input": (DYN, {"a": {"b": "0"}})}, 2),
    ("input.?a.?b.hasValue()", {"input": (DYN, {"a": {"b": "0"}})}, 4),
    ("input.?a.?b.hasValue()", {"input": (DYN, {"a": {}})}, 3),
    ("input.?a.orValue('x')", {"input": (DYN, {})}, 1),
    ("input.getFullYear()", {"input": (TIMESTAMP, Timestamp(0))}, 2),
    ("[1, 2, 3]", {}, 0),
    ("[x]", {"x": (INT, 1)}, 11),
    ("{'a': x}", {"x": (INT, 1)}, 31),
    ("input.all(x, true)", {"input": (list_of(INT), [])}, 2),
    ("[1, 2, 3].all(x, true)", {}, 10),
    ("[1, 2, 3].all(x, x < 2)", {}, 13),
    ("[1, 2, 3].exists(x, x == 1)", {}, 10),
    ("input.matches('[0-9]')", {"input": (STRING, LONG)}, 103),
    ("'123'.matches('[0-9]')", {}, 2),
    ("true || false", {}, 0),
    ("a || b || c || d", FALSES, 4),
    ("a && b && c && d", FALSES, 1),
    ("1 < 2", {}, 1),
    ("1 == 2", {}, 1),
    ("2 in [1, 2, 3]", {}, 0),
    ("x in [1, 2, 3]", {"x": (INT, 2)}, 1),
    ("2 in x", {"x": (list_of(INT), [1, 2, 3])}, 4),
    ("2 in x", {"x": (map_of(INT, INT), {2: 1})}, 2),
    ("1 + 1", {}, 1),
    ("true ? 1 : 2", {}, 0),
    ("false ? false : 1 > 3", {}, 1),
    ('size("123")', {}, 1),
    ("'12345678901234567890' == '123456789012345678901234567890'", {}, 2),
    ("'' == x", {"x": (STRING, "a")}, 1),
    ("string(input)", {"input": (BYTES, LONG.encode())}, 51),
    ("bytes(input)", {"input": (STRING, LONG)}, 51),
    ("string(1)", {}, 0),
    ("input.contains(part)", {"input": (STRING, LONG), "part": (STRING, LONG)}, 2502),
    ("input.startsWith(part)", {"input": (STRING, "idc"), "part": (STRING, LONG)}, 3),
    ("input.size()", {"input": (STRING, "500")}, 2),
    ("(x > 2 ? yes : no).all(y, true)", {"x": (INT, 1), "yes": (list_of(INT), [1]), "no": (list_of(INT), [1])}, 6),
    ("input.all(k, input[k].single > 3)", {"input": (map_of(STRING, OBJECT), {"v": {"single": 0}})}, 9),
    ("(x + y).all(e, true)", {"x": (list_of(INT), []), "y": (list_of(INT), [])}, 4),
    ('"abcdefg".contains(x + y)', {"x": (STRING, "val1"), "y": (STRING, "val2222222")}, 6),
    ("(1 > 2 ? 5 : 3) > 1", {}, 2),
    ("(1 > 2 || 2 > 1) == true", {}, 3),
    ("[{'k1': 1}, {'k2': 2}].all(x, true)", {}, 7),
    ("[1,2,3,4,5].filter(x, x % 2 == 0)", {}, 42),
    ("[1,2,3,4,5].map(x, x)", {}, 66),
    ("[1,2,3,4,5].map(x, x).filter(x, x % 2 == 0)", {}, 108),
    ("[1,2,3,4,5].map(x, x).exists(x, x == 5) == true", {}, 98),
    ("[1,2,3,4,5].map(x, x).map(x, x)", {}, 132),
    ("[1,2,3,4,5].map(x, [x, x]).filter(z, z.size() == 2)", {}, 202),
    ("[1,2,3,4,5].map(x, [x, x]).all(y, y.all(y, y == 1))", {}, 151),
    ("[1,2,3,4,5].map(x, x).map(x, x) + [1]", {}, 133),
    ("[1,2,3].all(i, i in [1,2,3].map(j, j + j))", {}, 56),
]


@pytest.mark.parametrize(("expression", "variables", "cost"), CASES)
def test_cost(expression: str, variables: dict[str, tuple[CelType, Any]], cost: int) -> None:
    environment = base_environment().extend(variables={name: of for name, (of, _) in variables.items()})
    program = environment.compile(expression)
    values = {name: value for name, (_, value) in variables.items()}
    assert program.evaluate_with_cost(values)[1] == cost
    program.evaluate(values, budget=cost)
    if cost:
        with pytest.raises(CostExceeded, match=r"^operation cancelled: actual cost limit exceeded$"):
            program.evaluate(values, budget=cost - 1)


def test_no_operator_absorbs_the_end_of_the_budget() -> None:
    environment = base_environment().extend(variables={"l": list_of(INT)})
    for expression in ("l.all(x, x >= 0) || true", "l.map(x, x).size() > 0 || true", "l.exists(x, l.all(y, y > x))"):
        program = environment.compile(expression)
        with pytest.raises(CostExceeded):
            program.evaluate({"l": list(range(1000))}, budget=500)


def test_repeated_doubling_ends() -> None:
    expression = "optional.of([1])" + ".optMap(x, x + x)" * 60 + ".value().size()"
    with pytest.raises(CostExceeded):
        base_environment().compile(expression).evaluate({})
