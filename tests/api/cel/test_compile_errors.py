"""Errors at compile time in cel-go's words; no other exception is ever raised."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubechronicle.api.cel import CompileError, Environment, EvaluationError, InstantiationError, base_environment
from kubechronicle.api.cel.syntax.lexer import ExpressionSource
from kubechronicle.api.cel.syntax.parser import parse
from kubechronicle.api.cel.types import BOOL, DYN, INT, STRING, CelType, list_of, map_of, object_type

_OPERAND = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_ARGUMENT = _OPERAND.replace("'.'", "')', '.'")
_NO_RANGE = "cannot be range of a comprehension (must be list, map, or dynamic)"
_ELEMENT = (
    "{'[', '{', '}', '(', '.', ',', '-', '!', '?', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES"
    ", IDENTIFIER}"
)
_INDEX = _OPERAND.replace("'!', ", "'!', '?', ")

VARIABLES = {
    "i": INT,
    "s": STRING,
    "b": BOOL,
    "d": DYN,
    "l": list_of(INT),
    "m": map_of(STRING, INT),
    "o": object_type("Object", {"name": STRING, "count": INT}),
}


@pytest.fixture(scope="module")
def environment() -> Environment:
    return base_environment().extend(variables=VARIABLES, types=[VARIABLES["o"]])


# expression -> the messages with their places (line:column)
CASES: list[tuple[str, list[str]]] = [
    # form
    (
        "a | b",
        [
            "1:3: Syntax error: token recognition error at: '| '",
            "1:5: Syntax error: extraneous input 'b' expecting <EOF>",
        ],
    ),
    (
        "1 + $",
        [
            "1:5: Syntax error: token recognition error at: '$'",
            f"1:6: Syntax error: mismatched input '<EOF>' expecting {_OPERAND}",
        ],
    ),
    (
        "1 + +",
        [
            f"1:5: Syntax error: mismatched input '+' expecting {_OPERAND}",
            f"1:6: Syntax error: mismatched input '<EOF>' expecting {_OPERAND}",
        ],
    ),
    ("", [f"1:1: Syntax error: mismatched input '<EOF>' expecting {_OPERAND}"]),
    (
        "*@a | b",
        [
            f"1:1: Syntax error: extraneous input '*' expecting {_OPERAND}",
            "1:2: Syntax error: token recognition error at: '@'",
            "1:5: Syntax error: token recognition error at: '| '",
            "1:7: Syntax error: extraneous input 'b' expecting <EOF>",
        ],
    ),
    ("{", [f"1:2: Syntax error: mismatched input '<EOF>' expecting {_ELEMENT}"]),
    ("{a}", ["1:3: Syntax error: mismatched input '}' expecting ':'"]),
    (
        "{:a}",
        [
            f"1:2: Syntax error: extraneous input ':' expecting {_ELEMENT}",
            "1:4: Syntax error: mismatched input '}' expecting ':'",
        ],
    ),
    ("f(a", ["1:4: Syntax error: missing ')' at '<EOF>'"]),
    ('{"a" 1}', ["1:6: Syntax error: missing ':' at '1'"]),
    ("b ? i s", ["1:7: Syntax error: missing ':' at 's'"]),
    ("[1,", ["1:4: Syntax error: missing ']' at '<EOF>'"]),
    ("[1,,2]", ["1:4: Syntax error: mismatched input ',' expecting ']'"]),
    ('{"a":1,', ["1:8: Syntax error: missing '}' at '<EOF>'"]),
    ("l[", [f"1:3: Syntax error: mismatched input '<EOF>' expecting {_INDEX}"]),
    ("[1, 2", ["1:6: Syntax error: mismatched input '<EOF>' expecting {']', ','}"]),
    ("o.true == 1", ["1:3: Syntax error: mismatched input 'true' expecting IDENTIFIER"]),
    ("o.", ["1:3: Syntax error: no viable alternative at input '.'"]),
    ('{"a": 1}."a"', ["1:10: Syntax error: no viable alternative at input '.\"a\"'"]),
    ("TestAllTypes(){}", ["1:15: Syntax error: mismatched input '{' expecting <EOF>"]),
    ("3\n3 +", ["2:1: Syntax error: mismatched input '3' expecting <EOF>"]),
    (
        "in",
        [
            f"1:1: Syntax error: mismatched input 'in' expecting {_OPERAND}",
            f"1:3: Syntax error: mismatched input '<EOF>' expecting {_OPERAND}",
        ],
    ),
    (
        '"\\xFh"',
        [
            "1:1: Syntax error: token recognition error at: '\"\\xFh'",
            "1:6: Syntax error: token recognition error at: '\"'",
            f"1:7: Syntax error: mismatched input '<EOF>' expecting {_OPERAND}",
        ],
    ),
    ("d.`a-b`", ["1:3: unsupported syntax: '`'"]),
    ("while", ["1:1: reserved identifier: while"]),
    (
        "[1].map(var, var * 1)",
        ["1:9: reserved identifier: var", "1:9: argument is not an identifier", "1:14: reserved identifier: var"],
    ),
    ("0xFFFFFFFFFFFFFFFFF", ["1:1: invalid int literal"]),
    ("9223372036854775808", ["1:1: invalid int literal"]),
    ("0xFFFFFFFFFFFFFFFFFu", ["1:1: invalid uint literal"]),
    ("1.99e90000009", ["1:1: invalid double literal"]),
    ("'\\ud800'", ["1:1: invalid unicode code point"]),
    ("b'\\u00e9'", ["1:1: unable to unescape string"]),
    # macros
    ("has(m)", ["1:5: invalid argument to has() macro"]),
    ("1.all(2, 3)", ["1:7: argument must be a simple name"]),
    ("l.filter(o.name, false)", ["1:11: argument is not an identifier"]),
    ("l.map(__result__, true)", ["1:7: iteration variable overwrites accumulator variable"]),
    ("l.all(x, x, true)", ["1:10: duplicate variable name: x"]),
    ("optional.of(1).optMap(o.name, 1)", ["1:24: optMap() variable name must be a simple identifier"]),
    # types
    ("foo", ["1:1: undeclared reference to 'foo' (in container '')"]),
    (
        "foo == 1 && bar.baz",
        [
            "1:1: undeclared reference to 'foo' (in container '')",
            "1:13: undeclared reference to 'bar' (in container '')",
        ],
    ),
    ("foo(1)", ["1:4: undeclared reference to 'foo' (in container '')"]),
    ("s.foo()", ["1:6: undeclared reference to 'foo' (in container '')"]),
    (
        "l.all(x)",
        ["1:6: undeclared reference to 'all' (in container '')", "1:7: undeclared reference to 'x' (in container '')"],
    ),
    ("l.all(x, y)", ["1:10: undeclared reference to 'y' (in container '')"]),
    ("o.nothing", ["1:2: undefined field 'nothing'"]),
    ("has(o.nothing)", ["1:4: undefined field 'nothing'"]),
    ("i.name", ["1:2: type 'int' does not support field selection"]),
    ("i + s", ["1:3: found no matching overload for '_+_' applied to '(int, string)'"]),
    ("i == 1.0", ["1:3: found no matching overload for '_==_' applied to '(int, double)'"]),
    ("s.startsWith(1)", ["1:13: found no matching overload for 'startsWith' applied to 'string.(int)'"]),
    ("size(i)", ["1:5: found no matching overload for 'size' applied to '(int)'"]),
    ("l['x']", ["1:2: found no matching overload for '_[_]' applied to '(list(int), string)'"]),
    ("i ? 1 : 2", ["1:3: found no matching overload for '_?_:_' applied to '(int, int, int)'"]),
    ("b ? 1 : 'x'", ["1:3: found no matching overload for '_?_:_' applied to '(bool, int, string)'"]),
    ("i && b", ["1:1: expected type 'bool' but found 'int'"]),
    ("l.all(x, x)", ["1:10: expected type 'bool' but found 'int'"]),
    ("i.all(x, true)", [f"1:1: expression of type 'int' {_NO_RANGE}"]),
    ("i == null", ["1:3: found no matching overload for '_==_' applied to '(int, null)'"]),
    ("timestamp(0) == 1", ["1:14: found no matching overload for '_==_' applied to '(timestamp, int)'"]),
    ("[1, 'a', 2.0]", ["1:5: expected type 'int' but found 'string'"]),
    (
        "{'a': 1, 2: 'b'}",
        ["1:10: expected type 'string' but found 'int'", "1:13: expected type 'int' but found 'string'"],
    ),
    ("[?1]", ["1:3: expected type 'optional_type(int)' but found 'int'"]),
    ("Nope{a: 1}", ["1:5: undeclared reference to 'Nope' (in container '')"]),
    ("int{a: 1}", ["1:4: 'int' is not a message type"]),
    ("Object{nope: 1}", ["1:12: undefined field 'nope'"]),
    ("Object{name: 1}", ["1:12: expected type of field 'name' is 'string' but provided type is 'int'"]),
    # constants
    ("duration('1 hour') > duration('1s')", ["1:10: invalid duration argument"]),
    ("timestamp('yesterday')", ["1:11: invalid timestamp argument"]),
    ("matches('a', s)", []),
    ("matches('a(', s)", ["1:9: invalid matches argument"]),
    ("s.matches('a(')", ["1:11: invalid matches argument"]),
    (
        "l.all(é, true)",
        [
            "1:7: Syntax error: token recognition error at: 'é'",
            f"1:8: Syntax error: extraneous input ',' expecting {_ARGUMENT}",
        ],
    ),
]


@pytest.mark.parametrize(("expression", "messages"), CASES)
def test_messages(environment: Environment, expression: str, messages: list[str]) -> None:
    found = []
    try:
        environment.compile(expression)
    except CompileError as error:
        found = [f"{issue.line}:{issue.column + 1}: {issue.message}" for issue in error.issues]
    assert found == messages


def test_the_text_shows_each_place(environment: Environment) -> None:
    with pytest.raises(CompileError) as raised:
        environment.compile("s == 'é' &&\n  foo.bar == '漢' + 1")
    assert str(raised.value) == (
        "ERROR: <input>:2:3: undeclared reference to 'foo' (in container '')\n"
        " |   foo.bar == '漢' + 1\n"
        " | ..^\n"
        "ERROR: <input>:2:18: found no matching overload for '_+_' applied to '(string, int)'\n"
        " |   foo.bar == '漢' + 1\n"
        " | ..............．..^"
    )


def test_the_text_of_many_errors_is_bounded(environment: Environment) -> None:
    with pytest.raises(CompileError) as raised:
        environment.compile("[" + "x, " * 30_000 + "]")
    assert len(raised.value.issues) == 100
    assert str(raised.value).endswith("(in container '')\n29900 more errors were truncated")
    assert len(str(raised.value)) < 10_000


@pytest.mark.parametrize("result", [BOOL, STRING])
def test_type_of_the_result(environment: Environment, result: CelType) -> None:
    assert environment.compile("d.x", result=result).result_type == DYN
    with pytest.raises(CompileError, match=f"must evaluate to {result}"):
        environment.compile("1 + 1", result=result)


def test_a_constant_that_cannot_be_converted(environment: Environment) -> None:
    with pytest.raises(InstantiationError) as raised:
        environment.compile("i == int('x')")
    assert str(raised.value) == "type conversion error from 'string' to 'int'"


_NESTED = "expression recursion limit exceeded: 250"
_CHAINED = "max recursion depth exceeded"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("(" * 251 + "1" + ")" * 251, _NESTED),
        ("[" * 251 + "]" * 251, _NESTED),
        ("b ? b : " * 251 + "b", _NESTED),
        ("1" + " + 1" * 251, _CHAINED),
        ("i" + " < i" * 251, _CHAINED),
        ("d" + ".x" * 251, _CHAINED),
        ("d" + ".?x" * 10 + ".x" * 241, _CHAINED),
        ("d" + "[0]" * 251, _CHAINED),
        ("d" + ".f()" * 251, _CHAINED),
        ("d" + ".x" * 100 + " + 1" * 151, _CHAINED),
    ],
)
def test_depth_is_bounded(environment: Environment, expression: str, message: str) -> None:
    with pytest.raises(CompileError) as raised:
        environment.compile(expression)
    assert str(raised.value) == f"ERROR: <input>:-1:0: {message}"


@pytest.mark.parametrize(
    "expression",
    [
        "1" + " + 1" * 200,
        "(" * 200 + "1" + ")" * 200,
        "[" * 200 + "]" * 200,
        "{'a': " * 200 + "1" + "}" * 200,
        "d" + ".x" * 200,
        "b" + " && b" * 2000,
        " && ".join(["i == 1"] * 5000),
        "[" + "[], " * 5000 + "]",
        "-" * 2000 + "1",
        "l.map(x0, " * 60 + "1" + ")" * 60,
    ],
)
def test_less_depth_compiles(environment: Environment, expression: str) -> None:
    environment.compile(expression)


def test_size_is_bounded(environment: Environment) -> None:
    with pytest.raises(CompileError) as raised:
        environment.compile("'" + "x" * 100_000 + "'")
    assert str(raised.value) == (
        "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100002, limit 100000"
    )


def test_names_in_backticks_if_enabled() -> None:
    assert parse(ExpressionSource("a.`b-c`"), {}, escaped_names=True) is not None


_PIECES = st.sampled_from(
    [
        *("1", "2u", "1.5", "'a'", "b'x'", '"\\n"', "true", "null", "i", "s", "d", "l", "m", "o", "x", "has", "int"),
        *("+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "!", "?", ":", " in ", ".", ",", "\n", " "),
        *("(", ")", "[", "]", "{", "}", ".all(x, ", ".map(x, ", ".optMap(x, ", ".?", "[?", "o.name", "l[0]", "`", "|"),
        *("'''", '"', "\\", "//", "é", "\x00", "0x", "1e", "\ud800", ".size()", "optional.of(", "Object{name: "),
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_PIECES, max_size=12).map("".join) | st.text(max_size=12))
def test_mangled_input_gives_an_answer(text: str) -> None:
    """Any input compiles or raises CompileError; any program returns a value or raises EvaluationError."""
    try:
        program = base_environment().extend(variables=VARIABLES).compile(text)
    except CompileError:
        return
    values = {"i": 1, "s": "s", "b": True, "d": {"x": [1]}, "l": [1, 2], "m": {"a": 1}, "o": {"name": "n"}}
    with contextlib.suppress(EvaluationError):
        program.evaluate_with_cost(values)
