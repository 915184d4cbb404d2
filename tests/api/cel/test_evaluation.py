"""Every operator, function and macro of the standard library: results and errors."""

from __future__ import annotations

import math
import zoneinfo
from typing import Any

import pytest

from kubechronicle.api.cel import Environment, EvaluationError, base_environment
from kubechronicle.api.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    CelField,
    list_of,
    map_of,
    object_type,
)
from kubechronicle.api.cel.values import Duration, ObjectValue, Timestamp, TypeValue, UInt, type_name

MADE = object_type("Made", {"a": INT, "b": STRING})
SCHEMA = object_type(
    "Schema",
    {
        "name": STRING,
        "count": INT,
        "__namespace__": CelField(STRING, "namespace"),
        "mode": CelField(STRING, "mode", "auto", has_default=True),
        "at": TIMESTAMP.reading(lambda text: Timestamp(int(text) * 10**9)),
        "times": list_of(TIMESTAMP.reading(lambda text: Timestamp(int(text) * 10**9))),
    },
)
VARIABLES = {
    "i": INT,
    "u": UINT,
    "f": DOUBLE,
    "s": STRING,
    "b": BOOL,
    "raw": BYTES,
    "d": DYN,
    "l": list_of(INT),
    "m": map_of(STRING, INT),
    "t": TIMESTAMP,
    "span": DURATION,
    "schema": SCHEMA,
    "a.b.c": INT,
}
VALUES: dict[str, Any] = {
    "i": 7,
    "u": UInt(3),
    "f": 1.5,
    "s": "text",
    "b": True,
    "raw": b"\x00\xff",
    "d": {"list": [1, "two", 3.0], "null": None, "nested": {"x": 1}, "yes": True},
    "l": [1, 2, 3],
    "m": {"x": 1, "y": 2},
    "t": Timestamp(1_709_210_096_789_000_000),  # 2024-02-29T12:34:56.789Z, a Thursday
    "span": Duration(5_025_500_000_000),
    "schema": {"name": "n", "count": 2, "namespace": "ns", "at": "1", "times": ["1", "2"]},
    "a.b.c": 5,
}


@pytest.fixture(scope="module")
def environment() -> Environment:
    return base_environment().extend(variables=VARIABLES, types=[MADE])


GIVES: list[tuple[str, Any]] = [
    # numbers
    ("1 + 2 * 3 - 4", 3),
    ("7 / 2", 3),
    ("-7 / 2", -3),
    ("-7 % 3", -1),
    ("7 % -3", 1),
    ("--1", 1),
    ("-i", -7),
    ("- 1", -1),
    ("0xff", 255),
    ("-0x10", -16),
    ("0xFFu", UInt(255)),
    ("5u - 3u", UInt(2)),
    ("7u / 2u", UInt(3)),
    ("7u % 2u", UInt(1)),
    ("2u * 3u", UInt(6)),
    ("1.5 + 1.5", 3.0),
    (".5 * 1e3", 500.0),
    ("1.0 / 0.0", math.inf),
    ("-1.0 / 0.0", -math.inf),
    ("1.0 / -0.0", -math.inf),
    ("-f", -1.5),
    ("9223372036854775807", 2**63 - 1),
    ("-9223372036854775808", -(2**63)),
    # comparison
    ("1 < 2 && 2 <= 2 && 3 > 2 && 3 >= 3", True),
    ("1u < 2 && 1 < 2u && 1 < 1.5 && 1.5 > 1u && 2.0 <= 2", True),
    ("-1 < 0u", True),
    ("dyn(9223372036854775807) < 9223372036854775808.0", False),
    ("'a' < 'b' && b'a' < b'b' && false < true", True),
    ("'ﬀ' < '😀'", True),
    ("t < t + span && span > duration('0s')", True),
    ("dyn(1) == 1.0 && dyn(1) == 1u && dyn(1u) == 1.0", True),
    ("dyn(1) == true", False),
    ("dyn('1') == 1", False),
    ("dyn(true) != 1", True),
    ("double('NaN') == double('NaN')", False),
    ("null == null", True),
    ("d == null", False),
    ("d['null'] == null", True),
    ("dyn([1, 2]) == [1.0, 2.0]", True),
    ("dyn({'a': 1}) == {'a': 1.0}", True),
    ("{'a': 1} == {'b': 1}", False),
    ("[[]] == [[]]", True),
    ("b'a' == b'a'", True),
    ("optional.of(1) == optional.of(1) && optional.none() != optional.of(1)", True),
    # logic
    ("true && !false || false", True),
    ("!!b", True),
    ("1 / 0 == 1 || true", True),
    ("true || 1 / 0 == 1", True),
    ("1 / 0 == 1 && false", False),
    ("false && d.absent", False),
    ("d.absent || b", True),
    ("d.nested || b", True),
    ("b && b && b && 1 / 0 > 0 && false", False),
    ("b ? 'yes' : 'no'", "yes"),
    ("b ? 1 : 1 / 0", 1),
    ("i == 7 ? (i < 7 ? 1 : 2) : i > 7 ? 3 : 4", 2),
    # texts and bytes
    ("'a' + 'b' + \"c\"", "abc"),
    ("b'a' + b'\\xff'", b"a\xff"),
    ("'\\a\\b\\f\\n\\r\\t\\v\\\\\\'\\\"\\`\\?'", "\a\b\f\n\r\t\v\\'\"`?"),
    ("'\\x41\\u00e9\\U0001F600\\101'", "Aé😀A"),
    ("b'\\x41\\351é'", b"A\xe9\xc3\xa9"),
    ("r'\\n' + R\"\\x\"", "\\n\\x"),
    ("'''it's\n\"two\" lines'''", 'it\'s\n"two" lines'),
    ('"""a\r\nb"""', "a\nb"),
    ("br'\\n'", b"\\n"),
    ("size('né😀') + 'abc'.size() + size(b'\\xff\\xff') + raw.size()", 10),
    ("size(l) + l.size() + size(m) + m.size()", 10),
    ("'banana'.contains('nan') && 'banana'.startsWith('ba') && 'banana'.endsWith('na')", True),
    ("'banana'.contains('')", True),
    ("'banana'.matches('^(an|b)+') && matches('x1', '[a-z][0-9]')", True),
    ("'abc'.matches('^b')", False),
    ("s.matches(s)", True),
    # lists and maps
    ("[1, 2] + [3]", [1, 2, 3]),
    ("l[0] + l[2]", 4),
    ("l[dyn(1.0)] + l[dyn(1u)]", 4),
    ("m['x'] + m.y", 3),
    ("{1: 'a', 2: 'b'}[2]", "b"),
    ("{true: 'a', false: 'b'}[false]", "b"),
    ("{1: 'a'}[dyn(1.0)]", "a"),
    ("1 in l && !(9 in l) && 'x' in m && !('z' in m)", True),
    ("s in ['text', 'other']", True),
    ("d in ['text']", False),
    ("dyn(1.0) in [1, 2]", True),
    ("dyn(true) in [1, 2]", False),
    ("b in [true]", True),
    ("d.list[1] in d.list", True),
    ("dyn(true) in {1: 2}", False),
    ("[1, [2, 3][1], {'a': [4]}.a[0]]", [1, 3, 4]),
    ("[1, 2,]", [1, 2]),
    ("{'a': 1,}", {"a": 1}),
    ("{}", {}),
    ("d.list", [1, "two", 3.0]),
    # fields
    ("schema.name + schema.__namespace__", "nns"),
    ("schema.mode", "auto"),
    ("has(schema.mode)", False),
    ("has(schema.name) && has(schema.__namespace__)", True),
    ("has(d.nested.x) && !has(d.nested.y) && has(d['nested'].x)", True),
    ("schema.at == timestamp('1970-01-01T00:00:01Z')", True),
    ("schema.times[1] - schema.times[0] == duration('1s')", True),
    ("schema.times.all(at, at > timestamp(0))", True),
    ("a.b.c", 5),
    ("d.nested.x", 1),
    ("Made{a: 1, b: 'x'}.a", 1),
    ("Made{a: 1} == Made{a: 1}", True),
    ("has(Made{a: 1}.b)", False),
    ("type(Made{}) == Made", True),
    # macros
    ("l.all(x, x > 0) && [].all(x, x > 0)", True),
    ("l.all(x, x > 1)", False),
    ("l.exists(x, x == 2) && !l.exists(x, x == 9)", True),
    ("m.all(k, m[k] > 0) && m.exists(k, k == 'y')", True),
    ("[0, 1].exists(x, 1 / x == 1)", True),
    ("[0, 1].all(x, 1 / x == 2)", False),
    ("l.exists_one(x, x > 2) && !l.exists_one(x, x > 1) && l.existsOne(x, x == 1)", True),
    ("l.map(x, x * x)", [1, 4, 9]),
    ("l.map(x, x > 1, x * x)", [4, 9]),
    ("m.map(k, k)", ["x", "y"]),
    ("l.filter(x, x % 2 == 1)", [1, 3]),
    ("l.map(x, l.map(y, x * y))", [[1, 2, 3], [2, 4, 6], [3, 6, 9]]),
    ("l.map(x, l.filter(x, x > 2))", [[3], [3], [3]]),
    ("l.all(i, i < 5) && i == 7", True),
    ("l.all(k, v, k < v)", True),
    ("m.exists(k, v, k == 'y' && v == 2)", True),
    ("m.existsOne(k, v, v > 1) && m.exists_one(k, v, v > 1)", True),
    ("l.transformList(k, v, k * v)", [0, 2, 6]),
    ("l.transformList(k, v, k > 0, v)", [2, 3]),
    ("m.transformMap(k, v, v + 1)", {"x": 2, "y": 3}),
    ("m.transformMap(k, v, v > 1, v)", {"y": 2}),
    ("l.transformMap(k, v, v)", {0: 1, 1: 2, 2: 3}),
    ("m.transformMapEntry(k, v, {v: k})", {1: "x", 2: "y"}),
    ("m.transformMapEntry(k, v, v > 1, {v: k})", {2: "y"}),
    ("d.list.filter(x, type(x) == string)", ["two"]),
    # optionals
    ("d.?nested.?x.orValue(0) + d.?nested.y.orValue(10)", 11),
    ("d.?nested.x.hasValue() && !d.?absent.x.hasValue()", True),
    ("m[?'x'].value()", 1),
    ("m[?'z'].orValue(5)", 5),
    ("l[?1].orValue(0) + l[?9].orValue(0)", 2),
    ("optional.of(m)['x'].value() + optional.of(m).y.value()", 3),
    ("optional.of(l)[?0].value()", 1),
    ("optional.ofNonZeroValue('').hasValue() || optional.ofNonZeroValue(0).hasValue()", False),
    ("optional.ofNonZeroValue([1]).value()", [1]),
    ("optional.none().or(optional.of(2)).value()", 2),
    ("optional.of(1).or(optional.of(1 / 0)).value()", 1),
    ("optional.of(1).orValue(1 / 0)", 1),
    ("optional.of(2).optMap(x, x * 2).value()", 4),
    ("optional.none().optMap(x, x * 2).hasValue()", False),
    ("m[?'x'].optFlatMap(x, m[?'y']).value()", 2),
    ("m[?'x'].optMap(x, m[?'y'].optMap(y, x + y)).value().value()", 3),
    ("[?m[?'x'], ?m[?'z'], 9]", [1, 9]),
    ("{'a': 1, ?'b': m[?'z'], ?'c': m[?'y']}", {"a": 1, "c": 2}),
    ("Made{?a: m[?'x'], ?b: optional.none()}", {"a": 1}),
    ("has(Made{?b: optional.none()}.b)", False),
    ("has(d.?nested.x) && has(optional.of(m).x)", True),
    ("[1, 2].first().value() + [1, 2].last().value()", 3),
    ("[].first().hasValue()", False),
    ("optional.unwrap([optional.of(1), optional.none()]) == [optional.of(1)].unwrapOpt()", True),
    # conversions
    ("int('-42') + int(1.9) + int(-1.9) + int(3u)", -39),
    ("int(timestamp('1970-01-01T00:01:00.9Z'))", 60),
    ("int(duration('1us'))", 1000),
    ("uint('42') + uint(1.9) + uint(3)", UInt(46)),
    ("double('1e3') + double(1) + double(2u)", 1003.0),
    ("double('-inf')", -math.inf),
    ("[string(1), string(1u), string(b), string(b'x'), string(s)]", ["1", "1", "true", "x", "text"]),
    ("[1e6, 123456.0, 1234567.5, 1e-4].map(x, string(x))", ["1e+06", "123456", "1.2345675e+06", "0.0001"]),
    ("[0.00001, 1e21, 100.0, 0.0, -0.0].map(x, string(x))", ["1e-05", "1e+21", "100", "0", "-0"]),
    ("string(1.0 / 0.0) + string(-1.0 / 0.0) + string(0.0 / 0.0)", "+Inf-InfNaN"),
    ("bool('t') && bool('TRUE') && !bool('False') && bool(b)", True),
    ("bytes('é')", b"\xc3\xa9"),
    ("dyn(1) + 1", 2),
    ("type(1) == int && type(1u) == uint && type('') == string && type(b) == bool && type(1.0) == double", True),
    ("type(b'') == bytes && type(null) == null_type && type([]) == list && type({}) == map && type(int) == type", True),
    ("type(t) == google.protobuf.Timestamp && type(span) == google.protobuf.Duration", True),
    ("type(optional.none()) == optional_type", True),
    ("type(type(1))", TypeValue("type")),
    # times
    ("timestamp('2024-02-29T12:34:56.789Z') == t && timestamp(t) == t", True),
    ("timestamp('2024-02-29T14:34:56.789+02:00') == t", True),
    ("string(t)", "2024-02-29T12:34:56.789Z"),
    ("string(timestamp(0))", "1970-01-01T00:00:00Z"),
    ("string(timestamp('0001-01-01T00:00:00Z'))", "0001-01-01T00:00:00Z"),
    ("[t.getFullYear(), t.getMonth(), t.getDate(), t.getDayOfMonth(), t.getDayOfWeek()]", [2024, 1, 29, 28, 4]),
    ("[t.getDayOfYear(), t.getHours(), t.getMinutes(), t.getSeconds(), t.getMilliseconds()]", [59, 12, 34, 56, 789]),
    ("[t.getHours('+02:00'), t.getHours('-02:30'), t.getHours('UTC'), t.getHours('')]", [14, 10, 12, 12]),
    ("[t.getMinutes('-02:30'), t.getDate('23:00'), t.getMonth('23:00')]", [4, 1, 2]),
    ("[t.getMilliseconds('+01:00'), t.getDayOfWeek('+12:00')]", [789, 5]),
    ("[span.getHours(), span.getMinutes(), span.getSeconds(), span.getMilliseconds()]", [1, 83, 5025, 5025500]),
    ("string(span) + string(duration('-1.5h')) + string(duration('1ns'))", "5025.5s-5400s0.000000001s"),
    ("duration('1h2m3s4ms5us6ns') == duration('3723.004005006s')", True),
    ("duration('0') == duration('0s') && duration(span) == span", True),
    ("t + span - t == span && span + t == t + span && t - span < t", True),
    ("span - span + span == span", True),
]


@pytest.mark.parametrize(("expression", "value"), GIVES)
def test_results(environment: Environment, expression: str, value: Any) -> None:
    found = environment.compile(expression).evaluate(VALUES)
    assert found == value
    assert type_name(found) == type_name(value) or isinstance(found, ObjectValue)


@pytest.mark.skipif(not zoneinfo.available_timezones(), reason="this machine knows no time zones")
def test_named_time_zones(environment: Environment) -> None:
    hours = environment.compile("['Asia/Kolkata', 'America/New_York', 'Europe/Berlin'].map(zone, t.getHours(zone))")
    assert hours.evaluate(VALUES) == [18, 7, 13]


FAILS: list[tuple[str, str]] = [
    ("i / 0", "division by zero"),
    ("u / 0u", "division by zero"),
    ("i % 0", "modulus by zero"),
    ("9223372036854775807 + i", "integer overflow"),
    ("-9223372036854775808 - i", "integer overflow"),
    ("9223372036854775807 * i", "integer overflow"),
    ("-(-9223372036854775808)", "integer overflow"),
    ("-9223372036854775808 / -1", "integer overflow"),
    ("-9223372036854775808 % -1", "integer overflow"),
    ("u - 4u", "unsigned integer overflow"),
    ("18446744073709551615u + u", "unsigned integer overflow"),
    ("18446744073709551615u * u", "unsigned integer overflow"),
    ("f < double(d.nan)", "no such key: nan"),
    ("0.0 / 0.0 < f", "NaN values cannot be ordered"),
    ("l[3]", "index out of bounds: 3"),
    ("l[-1]", "index out of bounds: -1"),
    ("l[dyn('x')]", "unsupported index type 'string' in list"),
    ("l[dyn(0.5)]", "unsupported index value 0.5 in list"),
    ("m.z", "no such key: z"),
    ("m['z']", "no such key: z"),
    ("{1: 2}[i]", "no such key: 7"),
    ("{1: 2}[dyn(true)]", "no such key: true"),
    ("d.list.x", "unsupported index type 'string' in list"),
    ("d['null'].x", "no such key: x"),
    ("has(d.list.x)", "unsupported index type 'string' in list"),
    ("d.absent || false", "no such key: absent"),
    ("d.absent && d.missing", "no such key: absent"),
    ("d.nested && b", "no such overload"),
    ("d.absent ? 1 : 2", "no such key: absent"),
    ("d.nested ? 1 : 2", "no such overload"),
    ("dyn('a') + 1", "no such overload"),
    ("dyn('a') - 1", "no such overload"),
    ("dyn(1) + 'a'", "no such overload"),
    ("d.nested + 1", "no such overload: _+_"),
    ("d.nested < 1", "no such overload: _<_"),
    ("dyn(1) < 'a'", "no such overload"),
    ("1 in d.nested.x", "no such overload"),
    ("!d.nested", "no such overload"),
    ("-d.nested", "no such overload: -_"),
    ("d.nested.startsWith('x')", "no such overload"),
    ("d.nested.matches('x')", "no such overload: matches"),
    ("d.nested.getHours()", "no such overload: getHours(map)"),
    ("size(d.yes)", "no such overload: size"),
    ("int(d.nested)", "no such overload: int(map)"),
    ("int(s)", "type conversion error from 'string' to 'int'"),
    ("uint(s + '-1')", "type conversion error from 'string' to 'uint'"),
    ("double(s)", "type conversion error from 'string' to 'double'"),
    ("bool(s)", "type conversion error from 'string' to 'bool'"),
    ("timestamp(s)", "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
    ("duration(s)", "type conversion error from 'string' to 'google.protobuf.Duration'"),
    ("int(f * 1e30)", "integer overflow"),
    ("int(18446744073709551615u - u)", "integer overflow"),
    ("uint(-i)", "unsigned integer overflow"),
    ("uint(-f)", "unsigned integer overflow"),
    ("string(raw)", "invalid UTF-8 in bytes, cannot convert to string"),
    ("timestamp(i * 1000000000000)", "timestamp overflow"),
    ("timestamp('9999-12-31T23:59:59Z') + span", "timestamp overflow"),
    ("timestamp('9999-12-31T23:59:59Z') - timestamp('0001-01-01T00:00:00Z')", "duration overflow"),
    ("duration('2562047h') + duration('1h')", "duration overflow"),
    ("t.getHours('Nowhere/Here')", "unknown time zone Nowhere/Here"),
    ("t.getHours('+01:99')", "timezone offset minutes out of range [0, 59]: +01:99"),
    ("s.matches('(' + s)", "error parsing regexp: missing closing ): `(text`"),
    ("[1, 0].all(x, 1 / x == 1)", "division by zero"),
    ("[1, 0].exists(x, 1 / x == 2)", "division by zero"),
    ("[1, 0].exists_one(x, 1 / x == 1)", "division by zero"),
    ("[1, 0].map(x, 1 / x)", "division by zero"),
    ("[1, 0].filter(x, 1 / x == 1)", "division by zero"),
    ("d.list.all(x, x)", "no such overload"),
    ("d.list.filter(x, x)", "no such overload"),
    ("d.yes.all(x, true)", "got 'types.Bool', expected iterable type"),
    ("d.yes.all(k, v, true)", "unsupported comprehension range type: types.Bool"),
    ("m.transformMapEntry(k, v, {'same': v})", "insert failed: key same already exists"),
    ("optional.none().value()", "optional.none() dereference"),
    ("m[?'z'].value()", "optional.none() dereference"),
]


@pytest.mark.parametrize(("expression", "message"), FAILS)
def test_errors(environment: Environment, expression: str, message: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        environment.compile(expression).evaluate(VALUES)
    assert str(raised.value) == message


def test_a_missing_variable(environment: Environment) -> None:
    with pytest.raises(EvaluationError, match=r"^no such attribute\(s\): i$"):
        environment.compile("i + 1").evaluate({})


def test_a_variable_of_another_type_than_declared(environment: Environment) -> None:
    with pytest.raises(EvaluationError, match=r"^no such overload$"):
        environment.compile("s.startsWith('x')").evaluate({"s": 1})


def test_paths_that_an_expression_reads(environment: Environment) -> None:
    program = environment.compile("d.nested.x == 1 && has(d.?opt.y) || l.all(e, e == schema.count) && d['z'] == 1 && b")
    assert program.reads == {"d.nested.x", "d.opt.y", "l", "schema.count", "d", "b"}


def test_evaluations_of_a_program_are_independent(environment: Environment) -> None:
    """Slots belong to one evaluation, so that a program is reusable."""
    program = environment.compile("l.map(x, l.exists(y, y == x * 2))")
    assert [program.evaluate({"l": [1, 2]}), program.evaluate({"l": [2, 5]})] == [[True, False], [False, False]]
