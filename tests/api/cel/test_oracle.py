"""Random expressions, compared with another CEL implementation if it is installed: same result, or both fail."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from kubechronicle.api.cel import EvaluationError, InstantiationError, base_environment
from kubechronicle.api.cel.operations.equality import equal
from kubechronicle.api.cel.types import BOOL, DOUBLE, DYN, INT, STRING, list_of, map_of

oracle = pytest.importorskip("cel_expr_python.cel")

TYPES = {
    "i": (INT, lambda kind: kind.INT),
    "s": (STRING, lambda kind: kind.STRING),
    "b": (BOOL, lambda kind: kind.BOOL),
    "f": (DOUBLE, lambda kind: kind.DOUBLE),
    "l": (list_of(INT), lambda kind: kind.List(kind.INT)),
    "t": (list_of(STRING), lambda kind: kind.List(kind.STRING)),
    "m": (map_of(STRING, INT), lambda kind: kind.Map(kind.STRING, kind.INT)),
    "d": (DYN, lambda kind: kind.DYN),
}
VALUES: dict[str, Any] = {
    "i": 3,
    "s": "héy",
    "b": True,
    "f": 1.5,
    "l": [1, 2, 3],
    "t": ["a", "bb", ""],
    "m": {"a": 1},  # one entry, because maps have no order
    "d": {"a": [1, "x", None, True, 2.0], "b": {"a": 1}, "c": 0},
}
NAMES = {"int": "i", "string": "s", "bool": "b", "double": "f", "ints": "l", "strings": "t", "map": "m"}

LITERALS = {
    "int": ["0", "1", "2", "-1", "9223372036854775807"],
    "string": ["'a'", "''", "'héy'", "'12'", "string(d.a[1])"],
    "bool": ["true", "false"],
    "double": ["0.0", "1.5", "-2.0", "1e10"],
    "ints": ["[]", "[1]", "[3, 1, 2]"],
    "strings": ["['a']", "['x', 'y']"],
    "map": ["{}", "{'a': 1}", "{'x': 5, 'b': 2}"],
}
# <type>: an expression of the type. <type:type>: one that may name @, a variable of the second type.
TEMPLATES = {
    "int": [
        *(f"(<int> {operator} <int>)" for operator in "+-*/%"),
        *("size(<string>)", "<ints>.size()", "size(<map>)", "<ints>[<int>]", "<map>[<string>]", "int(<double>)"),
        *("int(s + <string>)", "(<bool> ? <int> : <int>)", "int(d.c)"),
    ],
    "string": ["(<string> + <string>)", "string(i + <int>)", "<strings>[<int>]", "(<bool> ? <string> : <string>)"],
    "double": [
        *(f"(<double> {operator} <double>)" for operator in "+-*/"),
        *("double(i + <int>)", "double(s + <string>)"),
    ],
    "bool": [
        *(f"(<{kind}> {order} <{kind}>)" for kind in ("int", "double", "string") for order in ("<", ">=")),
        *(f"(<{kind}> {order} <{kind}>)" for kind in NAMES for order in ("==", "!=")),
        *("(<bool> && <bool>)", "(<bool> || <bool>)", "!<bool>", "(dyn(<int>) == dyn(<double>))"),
        *("<ints>.all(@, <bool:int>)", "<ints>.exists(@, <bool:int>)", "<strings>.exists_one(@, <bool:string>)"),
        *("(<int> in l + <ints>)", "(<string> in <map>)", "has(<map>.a)", "<string>.startsWith(<string>)"),
        *("<string>.contains(<string>)", "<string>.matches('^.?é|b*$')", "(dyn(<string>) == dyn(<bool>))"),
    ],
    "ints": [
        "(<ints> + <ints>)",
        "<ints>.map(@, <int:int>)",
        "<strings>.map(@, <bool:string>, size(@))",
        "<ints>.filter(@, <bool:int>)",
    ],
    "strings": ["<ints>.map(@, <string:int>)", "m.map(@, @ + <string:string>)"],
    "map": ["{'k': <int>, 'a': <int>}", "(<bool> ? <map> : <map>)"],
}


def written(chance: random.Random, kind: str, depth: int, scope: tuple[tuple[str, str], ...] = ()) -> str:
    names = [NAMES[kind], *(name for name, of in scope if of == kind)]
    if depth == 0 or chance.random() < 0.15:
        return chance.choice(names if chance.random() < 0.6 else LITERALS[kind])
    variable = f"v{depth}"

    def part(found: re.Match[str]) -> str:
        inner = scope if found[2] is None else (*scope, (variable, found[2]))
        return written(chance, found[1], depth - 1, inner)

    template = chance.choice(TEMPLATES[kind])
    return re.sub(r"<(\w+)(?::(\w+))?>", part, template.replace("@", variable))


@pytest.mark.parametrize("seed", range(2))
def test_both_agree(seed: int) -> None:
    environment = base_environment().extend(variables={name: of for name, (of, _) in TYPES.items()})
    other = oracle.NewEnv(variables={name: of(oracle.Type) for name, (_, of) in TYPES.items()})
    chance = random.Random(seed)
    for _ in range(250):
        expression = written(chance, chance.choice(list(NAMES)), chance.choice([2, 3, 4]))
        try:
            program = environment.compile(expression)
        except InstantiationError:  # the other implementation fails only when it evaluates the constant
            continue
        wanted = other.compile(expression).eval(data=VALUES).plain_value()
        if isinstance(wanted, str) and re.match(r"[A-Z_]+: ", wanted):
            with pytest.raises(EvaluationError):
                program.evaluate(VALUES)
            continue
        found = program.evaluate(VALUES)
        assert equal(found, wanted) or (found != found and wanted != wanted), expression
