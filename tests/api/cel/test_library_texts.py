"""Strings, patterns and formats in expressions: cel-go's and Kubernetes' documented examples, and edge cases."""

from __future__ import annotations

import pytest

from kubechronicle.api.cel import EvaluationError, base_environment
from kubechronicle.api.cel.operations.patterns import PatternError, compiled

TRUE = (
    "'hello'.charAt(4) == 'o' && 'hello'.charAt(5) == ''",
    "'hello mellow'.indexOf('') == 0 && 'hello mellow'.indexOf('ello') == 1 && 'hello mellow'.indexOf('jello') == -1",
    "'hello mellow'.indexOf('', 2) == 2 && 'hello mellow'.indexOf('ello', 2) == 7 && 'a'.indexOf('a', 20) == -1",
    "'hello mellow'.lastIndexOf('') == 12 && 'hello mellow'.lastIndexOf('ello') == 7 && 'a'.lastIndexOf('jello') == -1",
    "'hello mellow'.lastIndexOf('ello', 6) == 1 && 'hello mellow'.lastIndexOf('ello', 20) == -1",
    "'größe'.indexOf('ö') == 2 && 'größe'.charAt(3) == 'ß' && 'größe'.substring(3) == 'ße'",
    "['hello', 'mellow'].join() == 'hellomellow' && ['hello', 'mellow'].join(' ') == 'hello mellow' && [].join() == ''",
    "'TacoCat'.lowerAscii() == 'tacocat' && 'TacoCÆt Xii'.lowerAscii() == 'tacocÆt xii'",
    "'TacoCat'.upperAscii() == 'TACOCAT' && 'TacoCÆt Xii'.upperAscii() == 'TACOCÆT XII'",
    "'hello hello'.replace('he', 'we') == 'wello wello' && 'hello hello'.replace('he', 'we', 1) == 'wello hello'",
    "'hello hello'.replace('he', 'we', -1) == 'wello wello' && 'hello hello'.replace('he', 'we', 0) == 'hello hello'",
    "'abc'.replace('', '-') == '-a-b-c-'",
    "'hello hello hello'.split(' ') == ['hello', 'hello', 'hello'] && 'hello hello hello'.split(' ', 0) == []",
    "'hello hello hello'.split(' ', 1) == ['hello hello hello'] && 'a b c'.split(' ', 2) == ['a', 'b c']",
    "'abc'.split('') == ['a', 'b', 'c'] && 'abc'.split('', 2) == ['a', 'bc']",
    "''.split('') == [] && ''.split(',') == ['']",
    "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && 'a'.substring(1) == ''",
    r"'  \ttrim\n    '.trim() == 'trim' && '\u00a0\u2003x'.trim() == 'x'",
    r"""strings.quote('first\nsecond') == '"first\\nsecond"' && strings.quote('a"b\\c') == '"a\\"b\\\\c"'""",
    "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
    "'123 abc 456'.findAll('[0-9]*') == ['123', '', '', '', '', '456']",
    "'123 abc 456'.findAll('[0-9]+', 1) == ['123'] && '1 2'.findAll('[0-9]+', 0) == [] && '1'.findAll('x') == []",
    "'123 abc 456'.findAll('abc') == ['abc'] && 'baac'.findAll('a*') == ['', 'aa', '']",
    "format.dns1123Label().validate('valid-name') == optional.none()",
    "format.named('dns1123Label') == optional.of(format.dns1123Label()) && format.named('nope') == optional.none()",
    "format.dns1123Label().validate('Bad').value()[0].startsWith('a lowercase RFC 1123 label must consist of')",
    "!format.dns1123LabelPrefix().validate('pre-').hasValue() && format.dns1123Label().validate('pre-').hasValue()",
    "!format.dns1123Subdomain().validate('a.b').hasValue() && !format.dns1035Label().validate('a1').hasValue()",
    "!format.qualifiedName().validate('example.com/N').hasValue() && !format.labelValue().validate('A_b').hasValue()",
    "!format.uri().validate('https://example.com').hasValue()",
    """format.uri().validate('x').value() == ['parse "x": invalid URI for request']""",
    "!format.uuid().validate('123E4567-e89b-12d3-a456-426614174000').hasValue()",
    "format.uuid().validate('123').value() == ['does not match the UUID format']",
    "!format.byte().validate('aGVsbG8=').hasValue() && format.byte().validate('').value() == ['invalid base64']",
    "!format.date().validate('2024-02-29').hasValue() && format.date().validate('2021-02-29').hasValue()",
    "!format.datetime().validate('2021-01-01T00:00:00Z').hasValue()",
    "format.datetime().validate('2021-01-01T24:00:00Z').value() == ['invalid datetime']",
)


@pytest.mark.parametrize("expression", TRUE)
def test_holds(expression: str) -> None:
    assert base_environment().compile(expression).evaluate({}, budget=10_000) is True


FORMATTED = (
    ("'no substitution'.format([])", "no substitution"),
    ("'str is %s and some more'.format(['filler'])", "str is filler and some more"),
    ("'%%%s%%'.format(['text'])", "%text%"),
    ("'%d %d, %s %s'.format([1, uint(2), 'A', 'B'])", "1 2, A B"),
    ("'%.3f'.format([1.2345])", "1.234"),
    ("'%f'.format([2.71828])", "2.718280"),
    ("'%.2f'.format([1234567.891])", "1,234,567.89"),
    ("'%f'.format([-0.0])", "0.000000"),
    ("'%b %b %b'.format([5, -5, true])", "101 -101 1"),
    ("'%o %o'.format([11, -11])", "13 -13"),
    ("'%x %X %x'.format([30, 30, -30])", "1e 1E -1e"),
    ("'%x'.format(['Hello world!'])", "48656c6c6f20776f726c6421"),
    (r"'%X'.format([b'\x00byte'])", "0062797465"),
    ("'%.6e'.format([1052.032911275])", "1.052033\u202f×\u202f10⁰³"),
    ("'%e'.format([0.00015])", "1.500000\u202f×\u202f10⁻⁰⁴"),
    ("'%f %f %f'.format(['NaN', 'Infinity', '-Infinity'])", "NaN ∞ -∞"),
    ("'%s'.format([2.71])", "2.71"),
    ("'%s'.format([[2.71]])", "[2.710000]"),
    ("'%s'.format([0.000000002])", "2e-09"),
    ("'%s %s %s'.format([1000000.0, 999999.0, 1.0])", "1e+06 999999 1"),
    ("'%s'.format([[double('NaN'), double('Inf'), double('-Inf')]])", '["NaN", "+Inf", "-Inf"]'),
    ("'%s %s %s'.format([null, true, b'xyz'])", "null true xyz"),
    ("'%s'.format([type('x')])", "string"),
    ("'%s'.format([timestamp('2023-02-03T23:31:20+00:00')])", "2023-02-03T23:31:20Z"),
    ("'%s'.format([duration('1h45m47s')])", "6347s"),
    (
        "'%s'.format([[timestamp('2023-02-03T23:31:20Z'), duration('1.5s')]])",
        '[timestamp("2023-02-03T23:31:20Z"), duration("1.5s")]',
    ),
    ("""'%s'.format([['abc', 3.14, null, [9, 8], b'\\x61']])""", '["abc", 3.140000, null, [9, 8], b"a"]'),
    (
        """'%s'.format([{'key1': b'xyz', 'key5': null, 'key2': duration('2h'), 'key4': true, 'key3': 2.73}])""",
        '{"key1":b"xyz", "key2":duration("7200s"), "key3":2.730000, "key4":true, "key5":null}',
    ),
    ("'%s'.format([{10: 'a', 9: 'b'}])", '{10:"a", 9:"b"}'),
)


@pytest.mark.parametrize(("expression", "text"), FORMATTED)
def test_format(expression: str, text: str) -> None:
    assert base_environment().compile(expression).evaluate({}, budget=10_000) == text


FAILING = (
    ("'hello'.charAt(6)", "index out of range: 6"),
    ("'hello'.substring(6)", "index out of range: 6"),
    ("'hello'.substring(3, 2)", "invalid substring range. start: 3, end: 2"),
    ("'hello'.substring(0, 9)", "index out of range: 9"),
    ("'hello'.indexOf('l', -1)", "index out of range: -1"),
    ("'a'.find(dyn('('))", "Illegal regex: error parsing regexp: missing closing ): `(`"),
    (
        "'%d'.format(dyn(['x']))",
        "error during formatting: decimal clause can only be used on integers, was given string",
    ),
    ("'%d %d'.format(dyn([1]))", "index 1 out of range"),
    (
        "'%q'.format(dyn([1]))",
        'could not parse formatting clause: unrecognized formatting clause "q"',
    ),
    (
        "'%.f'.format(dyn([1.0]))",
        "could not parse formatting clause: error while parsing precision: "
        'error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax',
    ),
    ("'%'.format(dyn([1.0]))", "unexpected end of string"),
    (
        "'%s'.format(dyn([url('/x')]))",
        "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, "
        "types, durations, and timestamps, was given kubernetes.URL",
    ),
)


@pytest.mark.parametrize(("expression", "message"), FAILING)
def test_fails(expression: str, message: str) -> None:
    program = base_environment().compile(expression)
    with pytest.raises(EvaluationError) as caught:
        program.evaluate({}, budget=10_000)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a(", "missing closing ): `a(`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("\\k", "invalid escape sequence: `\\k`"),
        ("a\\C", "invalid escape sequence: `\\C`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
    ],
)
def test_errors_of_patterns(pattern: str, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        compiled(pattern)
    assert str(caught.value) == f"error parsing regexp: {message}"


def test_a_pattern_takes_linear_time() -> None:
    assert not compiled("(a+)+$").matches("a" * 50_000 + "b")


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("'0123456789'.lowerAscii()", 1),
        ("'01234567890'.trim()", 2),
        ("'0123456789 '.replace('x', 'y')", 3),
        ("'%s'.format(['x'])", 1),
        ("'01234567890123456789'.indexOf('x')", 2),
        ("'0123456789'.find('[0-9]+')", 4),
        ("['0123456789', 'x'].join()", 3),
        ("'a'.charAt(0)", 1),
        ("format.dns1123Label().validate('x')", 9),
    ],
)
def test_costs(expression: str, cost: int) -> None:
    assert base_environment().compile(expression).evaluate_with_cost({}, budget=10_000)[1] == cost
