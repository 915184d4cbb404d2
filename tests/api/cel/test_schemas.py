"""Objects of schemas in expressions: types of schemas, escaping of names, conversion of values."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.cel import CompileError, EvaluationError, base_environment
from kubechronicle.api.cel.schemas import built_in_type, object_type_of, value_of, without_nulls
from kubechronicle.api.cel.syntax.escaping import escape, unescape
from kubechronicle.api.schema.types import object_type

STRINGS = {"type": "array", "items": {"type": "string"}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "namespace": {"type": "string"},
                "x-ray": {"type": "integer"},
                "a.b/c": {"type": "boolean"},
                "under__score": {"type": "string"},
                "has space": {"type": "string"},
                "port": {"x-kubernetes-int-or-string": True},
                "ratio": {"type": "number"},
                "data": {"type": "string", "format": "byte"},
                "at": {"type": "string", "format": "date-time"},
                "day": {"type": "string", "format": "date"},
                "wait": {"type": "string", "format": "duration"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "times": {"type": "array", "items": {"type": "string", "format": "date-time"}},
                "free": {"x-kubernetes-preserve-unknown-fields": True},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "set": {**STRINGS, "x-kubernetes-list-type": "set"},
                "list": STRINGS,
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
                    },
                },
                "template": {"type": "object", "x-kubernetes-embedded-resource": True},
                "maybe": {"type": "string", "nullable": True},
            },
        }
    },
}
DATA: dict[str, Any] = {
    "kind": "Widget",
    "metadata": {"name": "w"},
    "spec": {
        "namespace": "n",
        "x-ray": 1,
        "a.b/c": True,
        "under__score": "u",
        "port": 80,
        "ratio": 1,
        "data": "aGk=",
        "at": "2024-01-01T00:00:00Z",
        "day": "2024-01-01",
        "wait": "90s",
        "labels": {"a": "b"},
        "times": ["2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"],
        "set": ["a", "b"],
        "list": ["a", "b"],
        "ports": [{"name": "x", "port": 1}, {"name": "y", "port": 2}],
        "template": {"metadata": {"name": "t"}},
        "maybe": None,
    },
}


def evaluate(expression: str) -> Any:
    of = object_type_of(SCHEMA, "selfType", resource=True)
    assert of is not None
    program = base_environment().extend(variables={"self": of}).compile(expression)
    strip = without_nulls(SCHEMA)
    assert strip is not None
    return program.evaluate({"self": value_of(strip(DATA), of)})


@pytest.mark.parametrize(
    "expression",
    [
        "self.kind == 'Widget' && self.metadata.name == 'w' && !has(self.metadata.generateName)",
        "self.spec.__namespace__ == 'n' && self.spec.x__dash__ray == 1 && self.spec.a__dot__b__slash__c",
        "self.spec.namespace == 'n' && has(self.spec.namespace) && self.spec.?namespace.orValue('') == 'n'",
        "self.spec.under__underscores__score == 'u'",
        "type(self.spec.port) == int && self.spec.port == 80",
        "self.spec.ratio == 1.0 && type(self.spec.ratio) == double",
        "self.spec.data == b'hi' && size(self.spec.data) == 2",
        "self.spec.at == timestamp('2024-01-01T00:00:00Z') && self.spec.at.getFullYear() == 2024",
        "self.spec.day == timestamp('2024-01-01T00:00:00Z') && self.spec.wait == duration('1m30s')",
        "self.spec.times.all(t, t >= self.spec.at) && self.spec.times[1].getFullYear() == 2025",
        "self.spec.labels['a'] == 'b' && self.spec.labels.a == 'b'",
        "self.spec.set == ['b', 'a'] && self.spec.list != ['b', 'a'] && self.spec.set != ['b', 'c']",
        "self.spec.set + ['c', 'a'] == ['c', 'b', 'a'] && (self.spec.set + ['c'])[2] == 'c'",
        "size(self.spec.set + self.spec.set) == 2 && size(self.spec.list + self.spec.list) == 4",
        "self.spec.ports == self.spec.ports && size(self.spec.ports + self.spec.ports) == 2",
        "self.spec.template.metadata.name == 't'",
        "!has(self.spec.maybe) && !has(self.spec.open)",
    ],
)
def test_holds(expression: str) -> None:
    assert evaluate(expression) is True


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("self.spec.free == 1", "undefined field 'free'"),
        ("self.spec.open.any == 1", "undefined field 'any'"),
        ("self.spec.nope", "undefined field 'nope'"),
        ("self.spec.return", "undefined field 'return'"),
        ("self.spec.ratio == 'x'", "found no matching overload for '_==_' applied to '(double, string)'"),
        ("self.metadata.labels", "undefined field 'labels'"),
    ],
)
def test_does_not_compile(expression: str, problem: str) -> None:
    with pytest.raises(CompileError) as caught:
        evaluate(expression)
    assert problem in str(caught.value)


def test_data_that_contradict_the_schema() -> None:
    of = object_type_of(SCHEMA, "selfType", resource=True)
    assert of is not None
    program = base_environment().extend(variables={"self": of}).compile("self.spec.at > self.spec.day")
    with pytest.raises(EvaluationError, match="Invalid date-time formatted string yesterday"):
        program.evaluate({"self": {"spec": {"at": "yesterday", "day": "2024-01-01"}}})


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("plain", "plain"),
        ("namespace", "__namespace__"),
        ("in", "__in__"),
        ("a.b", "a__dot__b"),
        ("-a/b", "__dash__a__slash__b"),
        ("a__b", "a__underscores__b"),
        ("a_b_", "a_b_"),
        ("$a", None),
        ("1a", None),
        ("", None),
        ("é", None),
    ],
)
def test_escaping(name: str, escaped: str | None) -> None:
    assert escape(name) == escaped
    if escaped is not None:
        assert unescape(escaped) == name


@pytest.mark.parametrize("name", ["__what__", "a__in__", "__dot__x__y__"])
def test_unknown_escape_sequences(name: str) -> None:
    assert unescape(name) is None


def test_built_in_kinds() -> None:
    of = built_in_type(object_type("io.k8s.api.core.v1.Pod"), "Pod")
    pod = {
        "metadata": {"creationTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["a", "b"]},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}, "ports": []}]},
    }
    expression = (
        "self.metadata.creationTimestamp.getFullYear() == 2024 && self.metadata.finalizers == ['b', 'a']"
        " && quantity(self.spec.containers[0].resources.limits.cpu) == quantity('1000m')"
    )
    assert base_environment().extend(variables={"self": of}).compile(expression).evaluate({"self": pod}) is True
