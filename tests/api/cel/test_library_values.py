"""Lists, sets, quantities and versions in expressions: Kubernetes' documented examples, and edge cases."""

from __future__ import annotations

import pytest

from kubechronicle.api.cel import CompileError, CostExceeded, EvaluationError, base_environment
from kubechronicle.api.cel.types import DYN

TRUE = (
    "[1, 2, 3].isSorted() && !['b', 'a'].isSorted() && [].isSorted() && [1.0, 2.0].isSorted()",
    "[false, true].isSorted() && [duration('1s'), duration('1m')].isSorted() && [b'a', b'b'].isSorted()",
    "[1, 3].sum() == 4 && [1.0, 3.0].sum() == 4.0 && [1u, 2u].sum() == 3u",
    "[duration('1m'), duration('1s')].sum() == duration('61s')",
    "[1, 3].min() == 1 && [1, 3].max() == 3 && ['a', 'b'].max() == 'b'",
    "[1, 2, 2, 3].indexOf(2) == 1 && ['a', 'b', 'b'].lastIndexOf('b') == 2 && [1.0].indexOf(1.1) == -1",
    "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [1].slice(1, 1) == []",
    "[[1, 2], [3]].flatten() == [1, 2, 3] && [[[1]], [[2, 3]]].flatten(2) == [1, 2, 3]",
    "[3, 2, 1].sort() == [1, 2, 3] && ['b', 'c', 'a'].sort() == ['a', 'b', 'c']",
    "['bb', 'a', 'ccc'].sortBy(e, size(e)) == ['a', 'bb', 'ccc']",
    "[3, 1, 2].sortBy(i, -i) == [3, 2, 1]",
    "lists.range(4) == [0, 1, 2, 3] && lists.range(0) == [] && lists.range(-1) == []",
    "[5, 3, 1, 2].reverse() == [2, 1, 3, 5] && [1, 2, 2, 3, 3].distinct() == [1, 2, 3]",
    "sets.contains([1, 2, 3, 4], [2, 3]) && !sets.contains([1], [2]) && sets.contains([], [])",
    "sets.equivalent([1, 1], [1]) && !sets.equivalent([1, 2], [1]) && sets.equivalent([1, 2], [2, 1])",
    "sets.intersects([1], [1, 2]) && !sets.intersects([1], []) && !sets.intersects([], [])",
    "quantity('200M').compareTo(quantity('0.2G')) == 0 && quantity('50M').compareTo(quantity('50Mi')) == -1",
    "quantity('50Mi').compareTo(quantity('50M')) == 1 && quantity('150Mi').isGreaterThan(quantity('100Mi'))",
    "quantity('50M').isLessThan(quantity('100M')) && !quantity('100M').isLessThan(quantity('50M'))",
    "quantity('2M') == quantity('0.002G') && quantity('1Ki') == quantity('1024') && quantity('1') != quantity('1m')",
    "quantity('50k').add(quantity('20')) == quantity('50.02k') && quantity('50k').add(20) == quantity('50020')",
    "quantity('50k').sub(quantity('20')) == quantity('49.98k') && quantity('50k').sub(20000) == quantity('30k')",
    "quantity('50k').add(20).sub(quantity('100k')).sub(-50000).asInteger() == 20",
    "quantity('50k').asInteger() == 50000 && quantity('50.703k').asApproximateFloat() == 50703.0",
    "quantity('50000000G').isInteger() && !quantity('1.5').isInteger()",
    "!quantity('9999999999999999999999999999999999999G').isInteger() && !quantity('1.0').isInteger()",
    "sign(quantity('-1')) == -1 && sign(quantity('0')) == 0 && sign(quantity('1n')) == 1",
    "isQuantity('1.3Gi') && isQuantity('10000k') && isQuantity('1e3') && isQuantity('-5') && isQuantity('+.5')",
    "!isQuantity('1,3G') && !isQuantity('200K') && !isQuantity('Three') && !isQuantity('')",
    "!isQuantity('1e') && !isQuantity('1e+') && !isQuantity('1-') && !isQuantity('1 ') && !isQuantity('Ei')",
    "quantity('Mi') == quantity('0') && quantity('.') == quantity('0') && quantity('0e30').asInteger() == 0",
    "quantity('9999999999999999Ki') == quantity('9223372036854775807') && !quantity('9999999999999999Ki').isInteger()",
    "quantity('99999999999999999999') == quantity('99999999999999999999')",
    "quantity('0.0000000001') == quantity('1n') && quantity('1e-400') == quantity('1n')",
    "quantity('1e2000000000').isGreaterThan(quantity('1E'))",
    "isSemver('1.0.0') && isSemver('0.1.0-alpha.1') && !isSemver('hello') && !isSemver('v1.0') && !isSemver('1.0')",
    "isSemver('v1.0', true) && isSemver('01.01.01', true) && !isSemver('1.0-a', true)",
    "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
    "semver('1.2.3').compareTo(semver('1.2.3')) == 0 && semver('1.2.3').compareTo(semver('2.0.0')) == -1",
    "semver('1.2.3').isGreaterThan(semver('0.1.2')) && semver('1.0.0-a').isLessThan(semver('1.0.0'))",
    "semver('1.0.0-alpha').isLessThan(semver('1.0.0-alpha.1')) && semver('1.0.0-2').isLessThan(semver('1.0.0-10'))",
    "semver('1.0.0-1').isLessThan(semver('1.0.0-a')) && semver('1.0.0+a') == semver('1.0.0+b')",
    "semver('v1.0', true) == semver('1.0.0') && semver('01.01.01', true) == semver('1.1.1')",
)


@pytest.mark.parametrize("expression", TRUE)
def test_holds(expression: str) -> None:
    assert base_environment().compile(expression).evaluate({}, budget=10_000) is True


MIXED = (
    ("x.flatten()", [1, 2, 3, [4]]),
    ("x.flatten(2)", [1, 2, 3, 4]),
    ("[true, false, true].distinct()", [True, False]),
    ("x.indexOf(1.0)", 0),
    ("sets.contains(x, [1.0])", True),
    ("sets.intersects(x, [true])", False),
    ("x.isSorted()", True),
)


@pytest.mark.parametrize(("expression", "value"), MIXED)
def test_lists_of_a_dynamic_type(expression: str, value: object) -> None:
    program = base_environment().extend(variables={"x": DYN}).compile(expression)
    assert program.evaluate({"x": [1, [2, 3], [[4]]]}, budget=10_000) == value


def test_a_list_of_mixed_types_has_no_order() -> None:
    program = base_environment().extend(variables={"x": DYN}).compile("x.sort()")
    with pytest.raises(EvaluationError, match="list elements must have the same type"):
        program.evaluate({"x": [1, "a"]}, budget=10_000)


SYNTAX = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
FAILING = (
    ("[].min()", "min called on empty list"),
    ("dyn([]).max()", "max called on empty list"),
    ("[9223372036854775807, 1].sum()", "integer overflow"),
    ("[1].slice(-1, 1)", "cannot slice(-1, 1), negative indexes not supported"),
    ("[1].slice(1, 0)", "cannot slice(1, 0), start index must be less than or equal to end index"),
    ("[1].slice(0, 2)", "cannot slice(0, 2), list is length 1"),
    ("dyn([[1]]).flatten(-1)", "level must be non-negative"),
    ("quantity('10Mo')", SYNTAX),
    ("quantity('200K')", "unable to parse quantity's suffix"),
    ("quantity('9999999999999999999999999999999999999G').asInteger()", "cannot convert value to integer"),
    ("semver('200K')", "No Major.Minor.Patch elements found"),
    ("semver('1.2.3', true).compareTo(semver('01.2.3'))", 'Major number must not contain leading zeroes "01"'),
    ("semver('1.2.x')", 'Invalid character(s) found in patch number "x"'),
    ("semver('1.2.3-')", "Prerelease is empty"),
    ("semver('1-a', true)", "short version cannot contain PreRelease/Build meta data"),
)


@pytest.mark.parametrize(("expression", "message"), FAILING)
def test_fails(expression: str, message: str) -> None:
    program = base_environment().compile(expression)
    with pytest.raises(EvaluationError) as caught:
        program.evaluate({}, budget=10_000)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "expression", ["lists.range(1000000000000)", "lists.range(5000).distinct()", "lists.range(200).sort()"]
)
def test_too_costly_values_are_not_made(expression: str) -> None:
    program = base_environment().compile(expression)
    with pytest.raises(CostExceeded):
        program.evaluate({}, budget=20_000)


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("quantity('10Mi')", 1),
        ("quantity('10Mi').asInteger()", 2),
        ("quantity('10Mi') == quantity('10Mi')", 3),
        ("[1, 2, 3].sum()", 3),
        ("sets.contains([1, 2], [1])", 3),
        ("sets.equivalent([1, 2], [1])", 5),
        ("[3, 2, 1].sort()", 29),
        ("['c', 'b'].sort()", 19),
        ("lists.range(5)", 16),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3')", 3),
        ("cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", 6),
        ("ip('2001:db8::1') == ip('2001:db8::1')", 5),
    ],
)
def test_costs(expression: str, cost: int) -> None:
    assert base_environment().compile(expression).evaluate_with_cost({}, budget=10_000)[1] == cost


@pytest.mark.parametrize(
    "expression",
    ["isQuantity([1, 2, 3])", "quantity('1').sign()", "'abc'.reverse()", "['a'].sum()", "semver('1.0.0').pre()"],
)
def test_missing_functions(expression: str) -> None:
    with pytest.raises(CompileError, match=r"no matching overload|undeclared reference"):
        base_environment().compile(expression)
