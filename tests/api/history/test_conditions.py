"""Conditions on stored objects: the verdict on the fields that a condition reads is the verdict on the whole object."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubechronicle.api.cel.environment import base_environment
from kubechronicle.api.cel.errors import EvaluationError
from kubechronicle.api.cel.evaluation.program import Program
from kubechronicle.api.cel.types import BOOL, DYN
from kubechronicle.api.history import conditions
from kubechronicle.api.history.conditions import OBJECT, ObjectCondition

EXPRESSIONS = (
    "true",
    "self.spec.replicas == 0",
    "has(self.spec.replicas) && self.spec.replicas > 1",
    "has(self.spec) && has(self.spec.node) && self.spec.node == 'n1'",
    "self.metadata.labels['app'] == 'web'",
    "'app' in self.metadata.labels",
    "self.spec.ports.exists(p, p.port == 1)",
    "self.spec.ports[0].port == 1",
    "size(self.spec) > 1",
    "self.spec == self.status",
    "size(self) > 3",
    "self['spec']['replicas'] == 1",
    "self.kind == 'Pod' || self.spec.replicas == 2",
    "self.spec.node.startsWith('n') && self.status.phase != self.spec.node",
    "self.metadata.name == 'a' ? self.spec.replicas == 1 : self.status.ready",
)
VALUE = st.one_of(st.none(), st.booleans(), st.integers(0, 2), st.sampled_from(["n1", "web"]), st.floats(0, 2))
PORTS = st.lists(st.one_of(VALUE, st.fixed_dictionaries({}, optional={"port": VALUE, "name": VALUE})), max_size=2)
MAP = st.dictionaries(st.sampled_from(["replicas", "node", "phase", "ready", "app"]), VALUE, max_size=4)
SPEC = st.one_of(VALUE, MAP, st.builds(lambda fields, ports: {**fields, "ports": ports}, MAP, PORTS))
OBJECTS = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "kind": st.sampled_from(["Pod", "Node"])},
    optional={
        "metadata": st.fixed_dictionaries({"name": st.sampled_from("ab")}, optional={"labels": SPEC}),
        "spec": SPEC,
        "status": SPEC,
    },
)


def compiled(expression: str) -> Program:
    return base_environment().extend({OBJECT: DYN}).compile(expression, BOOL)


def naive(program: Program, obj: Any) -> tuple[bool, str | None]:
    try:
        value = program.evaluate({OBJECT: obj})
    except EvaluationError as error:
        return False, str(error)
    return (value, None) if isinstance(value, bool) else (False, str(value))


PROGRAMS = [(compiled(expression), ObjectCondition(compiled(expression))) for expression in EXPRESSIONS]


@settings(deadline=None, max_examples=150)
@given(st.lists(OBJECTS, max_size=12))
def test_the_fields_decide_as_the_whole_object_does(objects: list[Any]) -> None:
    for program, condition in PROGRAMS:
        for obj in objects:
            body = orjson.dumps(obj)
            found = condition.of_body(body)
            assert (found.holds, found.failure) == naive(program, orjson.loads(body)), program.source


def test_equal_fields_are_judged_once() -> None:
    condition = ObjectCondition(compiled("self.spec.replicas == 0"))
    assert condition.of_body(b'{"apiVersion":"v1","kind":"X","metadata":{"name":"a"},"spec":{"replicas":0}}').cost > 0
    other = condition.of_body(b'{"apiVersion":"v1","kind":"X","metadata":{"name":"b"},"spec":{"replicas":0,"x":1}}')
    assert (other.holds, other.cost) == (True, 0)


def test_remembering_is_bounded_and_ends_if_nothing_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "KEPT", 8)
    condition = ObjectCondition(compiled("self.n == 3"))
    verdicts = [condition.of_body(b'{"apiVersion":"v1","kind":"X","n":%d}' % number) for number in range(20)]
    assert [each.holds for each in verdicts].index(True) == 3
    assert len(condition._known) == 0
    assert condition.of_body(b'{"apiVersion":"v1","kind":"X","n":3}').cost > 0


def test_many_fields_are_read_with_the_whole_object() -> None:
    expression = " && ".join(f"self.f{number} == {number}" for number in range(80))
    obj = {"apiVersion": "v1", "kind": "X", **{f"f{number}": number for number in range(80)}}
    assert ObjectCondition(compiled(expression)).of_body(orjson.dumps(obj)).holds
