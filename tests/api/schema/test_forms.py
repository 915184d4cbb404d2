"""Forms prove that the check of an object changes nothing: never where the walk would change or report something."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.schema import check, forms, types
from kubechronicle.api.schema.empties import Empty
from kubechronicle.api.schema.forms import MADE_AT_ONCE, MAX_FUTILE, RESTED, Proof
from kubechronicle.ops.bench import rules
from tests.api.builtin.test_every_kind import random_value

STORED = [rt for rt in builtin_registry() if rt.stored]
ODD = [None, "", 0, -1, False, True, 1.0, 0.5, 2**31, 2**63, [], {}, "x", "1.50", "1Gi", "1024Mi", "eA==", "e A==", "é"]
TIMES = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2026-02-30T00:00:00Z", "0001-01-01T00:00:00Z"]
TIMES += ["2026-01-01T00:00:00.000000Z", "2026-01-01T01:00:00+01:00", "2026-01-01t00:00:00z"]
MORE = [[None], [""], [1], [{}], {"a": None}, {"a": ""}, {"a": 1}, {"a": {}}, {"a": []}]
VALUES: list[Any] = [*ODD, *TIMES, *MORE]


class Unproved(Proof):
    """A proof of nothing, so that all objects take the walk."""

    def __call__(self, obj: dict[str, Any]) -> bool:
        return False


def walked(obj: dict[str, Any], kind: types.ObjectType) -> tuple[bytes, list[str], list[str]] | str:
    """Return the object after the walk, with the unknown fields and empty values that it reports; or its error."""
    empties: list[Empty] = []
    copied = copy_object(obj)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(check, "proof_of", Unproved)
        try:
            unknown = check.check(copied, kind, empties)
        except check.TypeMismatch as error:
            return str(error)
    return orjson.dumps(copied), unknown, [empty.path for empty in empties]


def check_of(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a copy of an object after its check."""
    checked: dict[str, Any] = copy_object(obj)
    check.check(checked, types.object_type(f"io.k8s.api.core.v1.{kind}"))
    return checked


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a value with its keys or indices."""
    for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(item, dict | list):
            yield from places(item)


@pytest.mark.parametrize("rt", STORED, ids=repr)
def test_the_walk_leaves_what_a_form_proves(rt: ResourceType) -> None:
    chance, kind = random.Random(rt.resource), types.object_type(rt.definition)
    proof, proved = Proof(kind), 0
    for _ in range(25):
        sent = {**random_value(kind, chance), "metadata": {"name": "a", "labels": {"a": "b"}}}
        tried = [sent, {}]
        found = walked(sent, kind)
        checked = {} if isinstance(found, str) else orjson.loads(found[0])
        proof.learn(checked)
        for _ in range(8):
            changed = copy_object(checked)
            holder, key = chance.choice([*places(changed), (changed, "unknown")])
            holder[key] = chance.choice(VALUES)
            tried.append(changed)
        for obj in [*tried, checked]:
            expected = walked(obj, kind)
            if proof(obj):
                proved += 1
                assert expected == (orjson.dumps(obj), [], [])
            else:
                assert walked(obj, kind) == expected
    assert proved or b"null" in walked({}, kind)[0]


@pytest.mark.parametrize(("make", "definition"), [(rules.pod, "Pod"), (rules.configmap, "ConfigMap")])
def test_a_form_of_the_fields_in_use(make: Any, definition: str) -> None:
    kind = types.object_type(f"io.k8s.api.core.v1.{definition}")
    proof, obj, walks = Proof(kind), make(), 0
    check.check(obj, kind)
    while not proof(obj):
        proof.learn(obj)
        walks += 1
    assert walks <= 1 + 64 // MADE_AT_ONCE
    obj["metadata"]["finalizers"] = ["a/b"]
    assert not proof(obj)
    proof.learn(obj)
    assert proof(obj)
    obj["metadata"]["managedFields"] = [{"time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:a": {}}}}]
    proof.learn(obj)
    assert proof(obj)
    obj["metadata"]["managedFields"][0]["time"] = "2026-01-01T00:00:00.1Z"
    assert not proof(obj)


def test_a_form_rests_while_it_is_of_no_use() -> None:
    kind = types.object_type("io.k8s.api.core.v1.ConfigMap")
    proof, good = Proof(kind), {"metadata": {"name": "a"}, "data": {"a": "b"}}
    proof.learn(good)
    assert proof(good)
    for _ in range(MAX_FUTILE):
        odd = {"metadata": {"name": "a"}, "data": {}}
        assert not proof(odd)
        proof.learn(odd)
    assert [proof(good) for _ in range(RESTED + 1)] == [False] * RESTED + [True]


def test_empty_objects_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "MAX_OBJECTS", 10)
    proof = Proof(types.object_type("io.k8s.api.core.v1.Node"))
    node: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {}, "status": {}}
    for _ in range(MAX_FUTILE - 1):
        proof.learn(check_of(node, "Node"))
    node["spec"]["podCIDR"] = "10.0.0.0/24"
    proof.learn(check_of(node, "Node"))
    assert proof(check_of(node, "Node"))


def test_a_form_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "MAX_FIELDS", 3)
    proof = Proof(types.object_type("io.k8s.api.core.v1.ConfigMap"))
    small: dict[str, Any] = {"metadata": {"name": "a"}}
    proof.learn(small)
    for name in ("data", "binaryData"):
        proof.learn({**small, name: {"a": "b"}})
    assert proof(small)
    assert not proof({**small, "immutable": True})
