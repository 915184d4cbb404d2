"""Expressions of admission and device selectors: their names, and the messages about rejected ones."""

from __future__ import annotations

import pytest

from kubechronicle.api.cel import devices
from kubechronicle.api.cel.admission import (
    ANNOTATION,
    APPLY_CONFIGURATION,
    CONDITION,
    JSON_PATCHES,
    MESSAGE,
    VARIABLE,
    Composition,
    OfferedNames,
    environment,
)
from kubechronicle.api.cel.errors import ExpressionReport
from kubechronicle.api.cel.types import CelType

PATCHES = OfferedNames(patches=True)
CONFIGURATION = "Object{spec: Object.spec{replicas: 1, ?paused: optional.none(), list: [Object.spec.list{a: 'b'}]}}"


@pytest.mark.parametrize(
    ("expression", "wanted", "offer"),
    [
        ("object.spec.replicas <= 5 && oldObject == null", CONDITION, OfferedNames()),
        ("request.userInfo.groups.exists(g, g == 'admins') && request.dryRun", CONDITION, OfferedNames()),
        ("request.kind.kind == 'Pod' && request.options.any == 1", CONDITION, OfferedNames()),
        (
            "namespaceObject.metadata.labels['a'] == 'b' && namespaceObject.status.phase == 'Active'",
            CONDITION,
            OfferedNames(),
        ),
        ("authorizer.requestResource.check('get').allowed()", CONDITION, OfferedNames()),
        ("params.maxReplicas > 1", CONDITION, OfferedNames(params=True)),
        ("'no more than ' + string(params.maxReplicas)", MESSAGE, OfferedNames(params=True, authorizer=False)),
        ("object.spec.replicas > 1 ? 'many' : 'few'", ANNOTATION, OfferedNames()),
        ("null", ANNOTATION, OfferedNames()),
        ("{'any': [1]}", VARIABLE, OfferedNames()),
        (CONFIGURATION, APPLY_CONFIGURATION, PATCHES),
        ("[JSONPatch{op: 'add', path: '/a', value: Object{}}]", JSON_PATCHES, PATCHES),
        ("true ? [JSONPatch{op: 'remove', path: '/' + jsonpatch.escapeKey('a/b')}] : []", JSON_PATCHES, PATCHES),
    ],
)
def test_accepted_expressions(expression: str, wanted: tuple[CelType, ...], offer: OfferedNames) -> None:
    assert Composition(False).problem(expression, wanted, offer) == ""


@pytest.mark.parametrize(
    ("expression", "wanted", "offer", "problem"),
    [
        ("object.metadata.name", CONDITION, OfferedNames(), "must evaluate to bool but got dyn"),
        ("'text'", CONDITION, OfferedNames(), "must evaluate to bool but got string"),
        ("1", ANNOTATION, OfferedNames(), "must evaluate to one of [string null_type] but got int"),
        ("timestamp('2024-01-01T00:00:00Z')", MESSAGE, OfferedNames(), "got google.protobuf.Timestamp"),
        ("[1.0]", CONDITION, OfferedNames(), "must evaluate to bool but got list(double)"),
        ("'x'", APPLY_CONFIGURATION, PATCHES, "must evaluate to Object but got string"),
        ("Object.spec{}", APPLY_CONFIGURATION, PATCHES, "must evaluate to Object but got Object.spec"),
        ("[1]", JSON_PATCHES, PATCHES, "must evaluate to list(JSONPatch) but got list(int)"),
        ("JSONPatch{op: 1}", JSON_PATCHES, PATCHES, "field 'op' is 'string' but provided type is 'int'"),
        ("Object{}", CONDITION, OfferedNames(), "undeclared reference to 'Object' (in container '')"),
        ("params.x", CONDITION, OfferedNames(), "undeclared reference to 'params' (in container '')"),
        ("variables.x", CONDITION, OfferedNames(), "undeclared reference to 'variables' (in container '')"),
        (
            "authorizer.path('/').check('get').allowed()",
            CONDITION,
            OfferedNames(authorizer=False),
            "undeclared reference",
        ),
        ("request.userinfo", CONDITION, OfferedNames(), "undefined field 'userinfo'"),
        ("object.matches('(')", CONDITION, OfferedNames(), "invalid matches argument"),
        ("duration('x') > duration('1s')", CONDITION, OfferedNames(), "invalid duration argument"),
        ("'%d'.format(['x']) == ''", CONDITION, OfferedNames(), "decimal clause can only be used on integers"),
        ("'%d'.format([1, 2]) == ''", CONDITION, OfferedNames(), "too many arguments supplied to string.format"),
        ("'%'.format([]) == ''", CONDITION, OfferedNames(), "unexpected end of string"),
        ("'%s'.format([]) == ''", CONDITION, OfferedNames(), "index 0 out of range"),
        ("[1, 'a'] == []", CONDITION, OfferedNames(), "expected type 'int' but found 'string'"),
    ],
)
def test_rejected_expressions(expression: str, wanted: tuple[CelType, ...], offer: OfferedNames, problem: str) -> None:
    assert problem in str(Composition(False).problem(expression, wanted, offer))


def test_variables_are_known_to_later_expressions() -> None:
    rules = Composition(True)
    assert "undefined field 'first'" in str(rules.declare("zeroth", "variables.first", OfferedNames()))
    assert rules.declare("first", "object.spec.containers.map(c, c.image)", OfferedNames()) == ""
    assert rules.declare("second", "size(variables.first)", OfferedNames()) == ""
    assert rules.problem("variables.second > 1 && variables.first[0] == 'x'", CONDITION, OfferedNames()) == ""
    assert "no matching overload" in str(rules.problem("variables.second == 'x'", CONDITION, OfferedNames()))
    assert rules.problem("variables.zeroth == 'x'", CONDITION, OfferedNames()) == ""  # of an unknown type


def test_mutations_construct_objects() -> None:
    program = environment(PATCHES).compile(CONFIGURATION)
    value = program.evaluate({})
    assert value == {"spec": {"replicas": 1, "list": [{"a": "b"}]}}
    assert [each.cel_type.name for each in (value, value["spec"], value["spec"]["list"][0])] == [
        "Object",
        "Object.spec",
        "Object.spec.list",
    ]


# -- devices ----------------------------------------------------------------------------------------------------------

DEVICE = {
    "attributes": {
        "mem": {"int": 80},
        "model": {"string": "x1"},
        "other.example.com/ok": {"bool": True},
        "driverVersion": {"version": "1.2.3"},
    },
    "capacity": {"memory": {"value": "80Gi"}},
}


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ('device.driver == "gpu.example.com"', True),
        ('device.attributes["gpu.example.com"].mem > 40 && device.attributes["other.example.com"].ok', True),
        ('device.attributes["other.example.com"].ok', True),
        ('device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))', True),
        ('device.attributes["gpu.example.com"].driverVersion.isLessThan(semver("1.0.0"))', False),
        ('"mem" in device.attributes["nowhere"]', False),
        ('has(device.attributes["nowhere"].mem)', False),
        ('device.attributes["nowhere"].?mem.orValue(1) == 1', True),
        ('cel.bind(gpu, device.attributes["gpu.example.com"], gpu.mem == 80 && gpu.model == "x1")', True),
        ("device.allowMultipleAllocations", False),
    ],
)
def test_selectors(expression: str, matches: bool) -> None:
    assert devices.problem(expression) == ""
    program = devices.environment().compile(expression)
    assert devices.matches(program, "gpu.example.com", DEVICE) is matches


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("device.nope", "compilation failed: ERROR: <input>:1:7: undefined field 'nope'\n | device.nope\n | ......^"),
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
        ("cel.bind(1, 2, true)", "cel.bind() variable names must be simple identifiers"),
        ("object.spec", "undeclared reference to 'object' (in container '')"),
    ],
)
def test_rejected_selectors(expression: str, problem: str) -> None:
    assert problem in str(devices.problem(expression))


@pytest.mark.parametrize(
    ("first", "last"), [("1", "x20 == x20"), ("[]", "x20 == x20"), ("[]", "x20"), ("1", "x20.all(y, y == y)")]
)
def test_types_that_double_with_each_level_are_rejected(first: str, last: str) -> None:
    bindings = [f"cel.bind(x0, {first}, ", *(f"cel.bind(x{n}, {{x{n - 1}: x{n - 1}}}, " for n in range(1, 21))]
    problem = str(devices.problem("".join(bindings) + last + ")" * len(bindings)))
    assert "recursion limit exceeded" in problem


def test_lists_in_lists_keep_their_types() -> None:
    assert devices.problem(f"{'[' * 100}1{']' * 100} == {'[' * 100}2{']' * 100}") == ""


def test_the_text_of_many_issues_is_built_when_it_is_shown() -> None:
    expression = "||".join(f"a{number}" for number in range(2000))
    problem = devices.problem(expression)
    assert isinstance(problem, ExpressionReport)
    assert len(problem.issues) == 100
    assert str(problem).startswith("compilation failed: ERROR: <input>:1:1: undeclared reference to 'a0'")
    assert str(problem).endswith("\n1900 more errors were truncated")
