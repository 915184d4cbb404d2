"""Patches as clients compute them: the three-way patches of `kubectl apply` and of Helm.

A patch turns any object into the intended one, and a second patch changes nothing. Objects of every kind are drawn from
the schema.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from drawn_objects import Object, example_settings, objects, with_field
from hypothesis import given
from hypothesis import strategies as st
from three_way import expected_object, merge_patch, patch, unordered

from kubechronicle.api.codecs import json as codec
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.patch import merge_patch as merging
from kubechronicle.api.patch import strategic_merge
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.schema import check, types

KINDS = [rt for rt in builtin_registry() if rt.stored and rt.is_storage_version]


def three(data: st.DataObject, kind: types.ObjectType, field: str = "") -> tuple[Object, Object, Object]:
    """(applied last, to be applied, live): the three have some of three drawn objects in common."""
    drawn = [data.draw(with_field(kind, field) if field else objects(kind, budget=20)) for _ in range(3)]
    for obj in drawn:
        if not field:
            obj["metadata"]["name"] = "a"
        check.check(obj, kind)
        remove_nulls(obj)
    first, second, third = drawn
    original = data.draw(mixed(first, {}))
    modified = data.draw(mixed(original, second))
    current = data.draw(mixed(data.draw(mixed(original, third)), second))
    return original, modified, current


@st.composite
def mixed(draw: st.DrawFn, one: Any, other: Any) -> Any:
    """A value with some of either; never null."""
    if isinstance(one, list) and isinstance(other, list) and draw(st.booleans()):
        return copy_object(draw(st.sampled_from([one[:1], one[1:], one[::-1]])))
    if not isinstance(one, dict) or not isinstance(other, dict):
        return copy_object(draw(st.sampled_from([one, other])))
    result = {}
    for name in (*one, *(name for name in other if name not in one)):
        if name in one and name in other:
            result[name] = draw(mixed(one[name], other[name]))
        elif draw(st.integers(0, 3)):
            result[name] = copy_object(one.get(name, other.get(name)))
    return result


def remove_nulls(value: Any) -> None:
    if isinstance(value, dict):
        for name in [name for name, item in value.items() if item is None]:
            del value[name]
        for item in value.values():
            remove_nulls(item)
    elif isinstance(value, list):
        for item in value:
            remove_nulls(item)


def check_patch(kind: types.ObjectType, original: Object, modified: Object, current: Object) -> None:
    computed = json.loads(json.dumps(patch(original, modified, current, kind)))
    result = strategic_merge.apply(copy_object(current), copy_object(computed), kind)
    remove_nulls(result)  # as decoding does; a new item of a list keeps those of the patch until then
    assert unordered(result, kind) == unordered(expected_object(original, modified, current, kind), kind), computed
    again = patch(modified, modified, result, kind)
    assert unordered(strategic_merge.apply(copy_object(result), again, kind), kind) == unordered(result, kind)


@pytest.mark.parametrize("rt", KINDS, ids=repr)
@given(data=st.data())
@example_settings(5)
def test_a_three_way_strategic_patch(rt: ResourceType, data: st.DataObject) -> None:
    kind = types.object_type(rt.definition)
    check_patch(kind, *three(data, kind))


@pytest.mark.parametrize(
    ("definition", "field"),
    [
        ("apps.v1.DeploymentSpec", "strategy"),  # keeps the keys the patch names
        ("core.v1.PodSpec", "volumes"),  # merged by name, each keeping the keys the patch names
        ("core.v1.PodSpec", "containers"),
        ("core.v1.ServiceSpec", "ports"),
        ("policy.v1.PodDisruptionBudgetSpec", "selector"),  # replaced as a whole
    ],
)
@given(data=st.data())
@example_settings(60)
def test_strategies_of_fields(definition: str, field: str, data: st.DataObject) -> None:
    kind = types.object_type(f"io.k8s.api.{definition}")
    check_patch(kind, *three(data, kind, field))


@given(rt=st.sampled_from(KINDS), data=st.data())
@example_settings(60)
def test_a_three_way_merge_patch(rt: ResourceType, data: st.DataObject) -> None:
    original, modified, current = three(data, types.object_type(rt.definition))
    computed, _ = codec.decode_value(codec.encode(merge_patch(original, modified, current)))
    result = merging.apply(copy_object(current), computed)
    assert result == expected_object(original, modified, current, None)
    assert merge_patch(modified, modified, result) == {}
