"""Worst-case costs of expressions, from their text and from the limits of data."""

from __future__ import annotations

import pytest

from kubechronicle.api.cel import base_environment
from kubechronicle.api.cel.cost_estimate import Path, estimate
from kubechronicle.api.cel.cost_spans import MOST
from kubechronicle.api.cel.devices import MAX_COST, worst_cost
from kubechronicle.api.cel.library.authorization import AUTHORIZER
from kubechronicle.api.cel.library.estimates import estimate as calls
from kubechronicle.api.cel.types import BOOL, INT, STRING, list_of, map_of, object_type

TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"


@pytest.mark.parametrize(
    ("expression", "least", "most"),
    [
        ("1 + 2", 1, 1),
        ("'a' == 'b'", 1, 1),
        ("'0123456789' + '0123456789'", 2, 2),
        ("true || 1 == 2", 0, 1),
        ("true ? 1 + 1 : 1", 0, 1),
        ("[1, 2, 3]", 10, 10),
        ("{'a': 1}", 30, 30),
        (f"{TEN}.all(x, x > 0)", 41, 61),
        (f"{TEN}.map(x, x + 1)", 161, 161),
        ("[1, 2].map(x, [x]).size()", 68, 68),
        ("'0123456789'.matches('[a-z]{10}')", 6, 6),
        ("'0123456789'.split('')", 2, 2),
        ("'0123456789'.replace('', 'ab')", 2, 2),
        ("'0123456789'.replace('', 'ab').lowerAscii()", 6, 6),
        ("[[1, 2], [3]].flatten()", 43, 43),
        ("lists.range(100)", 111, 111),
        ("[3, 2, 1].sort()", 39, 39),
        ("['c', 'b'].sort()", 30, 30),
        ("[3, 2].sortBy(e, -e)", 80, 80),
        ("[1, 2, 3].slice(0, 2)", 23, 23),
        ("sets.contains([1, 2], [1])", 23, 23),
        ("ip('10.0.0.1') == ip('10.0.0.2')", 3, 3),
        ("cidr('10.0.0.0/8').containsIP('10.0.0.1')", 3, 6),
        ("quantity('1Gi').isLessThan(quantity('2Gi'))", 3, 3),
        ("url('https://example.com') == url('https://example.com')", 5, 6),
        ("'%s and %s'.format(['a', 'b'])", 11, 11),
        ("format.dns1123Label().validate('name')", 33, 33),
        ("optional.of(1).optMap(v, v + 1)", 3, 17),
    ],
)
def test_cost_from_the_text(expression: str, least: int, most: int) -> None:
    assert estimate(base_environment().check(expression), lambda path: None, calls) == (least, most)


SELF = object_type(
    "selfType",
    {
        "name": STRING,
        "count": INT,
        "flag": BOOL,
        "list": list_of(STRING),
        "map": map_of(STRING, list_of(INT)),
    },
)
SIZES = {
    ("self", "name"): 63,
    ("self", "list"): 10,
    ("self", "list", "@items"): 20,
    ("self", "map"): 5,
    ("self", "map", "@keys"): 30,
    ("self", "map", "@values"): 7,
}


def sizes(path: Path) -> int | None:
    return SIZES.get(path)


@pytest.mark.parametrize(
    ("expression", "most"),
    [
        ("self.count + 1", 3),
        ("has(self.name)", 1),
        ("self.name == 'x'", 3),
        ("self.name.startsWith(self.name)", 11),
        ("self.name.matches('^[a-z]+$')", 16),
        ("self.list.all(x, x.contains('ab'))", 63),
        ("self.list.exists(x, self.list.exists(y, y == x))", 873),
        ("'x' in self.list", 12),
        ("self.list[0] == self.list[1]", 8),
        ("self.list.isSorted()", 32),
        ("self.list.join(',').size()", 24),
        ("self.map.all(k, k.size() < 10)", 33),
        ("self.map.all(k, v, v.sum() > 1)", 63),
        ("self.map['a'].map(x, x + 1)", 112),
        ("self.flag ? self.name : 'x'", 4),
    ],
)
def test_cost_from_limits_of_data(expression: str, most: int) -> None:
    tree = base_environment().extend(variables={"self": SELF}).check(expression)
    assert estimate(tree, sizes, calls).most == most


def test_cost_of_unlimited_data() -> None:
    environment = base_environment().extend(variables={"self": SELF, "authorizer": AUTHORIZER})
    assert estimate(environment.check("self.list.all(x, x == 'a')"), lambda path: None, calls) == (3, MOST)
    tree = environment.check("authorizer.group('').resource('pods').check('get').allowed()")
    assert estimate(tree, lambda path: None, calls) == (350_004, 350_004)


def test_selectors_of_devices() -> None:
    assert worst_cost('device.driver == "gpu.example.com"') == 4
    assert worst_cost('device.attributes.exists_one(x, x == "gpu.example.com")') == 164
    nested = "int('1'.find('[0-9]*')) < 100"
    for name in "abcdefg":
        nested = f"{TEN}.all({name}, {nested})"
    assert worst_cost(nested) > MAX_COST
