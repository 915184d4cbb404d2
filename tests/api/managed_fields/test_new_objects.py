"""The fields of new objects that are known by their shape: those that the comparison with an empty object gives."""

from __future__ import annotations

from typing import Any

import pytest
from drawn_objects import example_settings, objects
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.managed_fields import field_sets, managers
from kubechronicle.api.managed_fields.columns import shape_of
from kubechronicle.api.managed_fields.managers import Writer, strip_untracked
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.schema import types

KINDS = [rt for rt in builtin_registry() if rt.stored]
WRITER = Writer(manager="m", api_version="v1", now="2026-01-01T00:00:00Z")
LEAVES: tuple[Any, ...] = ("a", "", 0, 7, True, None, {})


def tracked(rt: ResourceType, obj: dict[str, Any]) -> Any:
    found = copy_object(obj)
    managers.track(types.object_type(rt.definition), None, found, writer=WRITER, reset=(("status",),))
    return [each["fieldsV1"] for each in found["metadata"].get("managedFields", ())]


def expected(rt: ResourceType, obj: dict[str, Any]) -> Any:
    kind = types.object_type(rt.definition)
    try:
        changed, _ = field_sets.compare(kind.zero(), obj, kind)
    except field_sets.NoPathElement:
        return []
    fields = field_sets.without_paths(strip_untracked(changed), (("status",),))
    return [fields] if fields else []


@pytest.mark.parametrize("rt", KINDS, ids=repr)
@given(data=st.data())
@example_settings(5)
def test_objects_of_the_same_shape_have_the_same_fields(rt: ResourceType, data: st.DataObject) -> None:
    drawn = data.draw(objects(types.object_type(rt.definition), budget=20))
    obj = {"apiVersion": rt.api_version, "kind": rt.kind, **drawn}
    obj.setdefault("metadata", {"name": "a"})
    for _ in range(2):
        assert tracked(rt, obj) == expected(rt, obj)
        for item in (obj, *obj.values()):
            for name in item if isinstance(item, dict) else ():
                if not isinstance(item[name], dict | list) and name not in ("apiVersion", "kind"):
                    item[name] = data.draw(st.sampled_from(LEAVES))


def test_small_objects_have_a_shape() -> None:
    meta = {"name": "a", "labels": {"l": "1"}}
    obj: dict[str, Any] = {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    assert shape_of(obj) == ("kind", ("name",), "metadata", ("k",), "data")
    assert shape_of({**obj, "metadata": meta}) == ("kind", ("name", ("l",), "labels"), "metadata", ("k",), "data")
    for other in (
        {**obj, "metadata": {**meta, "finalizers": ["f"]}},
        {**obj, "metadata": {"a": {"b": {}}}},
        {**obj, "metadata": {"metadata": {"b": {}}}},
        {**obj, "data": {"k": {}}},
        {**obj, "rules": []},
    ):
        assert shape_of(other) is None


def test_objects_of_the_same_shape_share_their_set() -> None:
    rt = next(rt for rt in KINDS if rt.resource == "configmaps")
    objs: list[dict[str, Any]] = [{"metadata": {"name": name}, "data": {"k": name}} for name in "ab"]
    one, other = (tracked(rt, obj)[0] for obj in objs)
    assert one is other
