"""Server-side apply of any objects of any kind, by one and by two managers, against a model of ownership.

The model is flat, path → value, and independent of field sets: `leaves` returns the fields that a configuration claims.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from drawn_objects import Object, example_settings, objects
from hypothesis import assume, given
from hypothesis import strategies as st

from kubechronicle.api.codecs import protobuf
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.managed_fields import field_sets, managers
from kubechronicle.api.managed_fields.field_paths import paths
from kubechronicle.api.managed_fields.managers import Writer
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.patch import structured_merge, typed_readers, typed_values
from kubechronicle.api.patch.structured_merge import changes_within
from kubechronicle.api.pipeline import conversion, server_side_apply
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.schema import check, empties, types
from kubechronicle.api.schema.types import AnyType, ListType, ObjectType, Type

KINDS = [rt for rt in builtin_registry() if rt.stored]
Leaves = dict[tuple[str, ...], Any]


def kind_of(rt: ResourceType) -> ObjectType:
    return types.object_type(rt.definition)


@st.composite
def configurations(draw: st.DrawFn, rt: ResourceType) -> Object:
    """Draw a configuration: as drawn, with any spelling of values, but without nulls."""
    found = draw(objects(kind_of(rt), budget=20))
    given_ = {
        name: value for name, value in found["metadata"].items() if name in ("labels", "annotations", "finalizers")
    }
    config = {"apiVersion": rt.api_version, "kind": rt.kind, **found, "metadata": {"name": "a", **given_}}
    remove_nulls(config)
    for part, several in (("spec", "podCIDRs"), ("status", "podIPs")):
        # The first item also has a field of its own; defaults, not the manager, decide between the two.
        if rt.kind in ("Node", "Pod") and isinstance(config.get(part), dict):
            config[part].pop(several, None)
    return config


def remove_nulls(value: Any) -> None:
    if isinstance(value, dict):
        for name in [name for name, item in value.items() if item is None]:
            del value[name]
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        remove_nulls(item)


def apply(rt: ResourceType, old: Object | None, config: Object, manager: str, second: int, **more: Any) -> Object:
    writer = Writer(manager=manager, api_version=rt.api_version, now=f"2026-01-01T00:00:{second:02d}Z")
    # As YAML wants it: escapes are for the basic plane, and only they may stand for controls.
    text = re.sub("[\x7f-\uffff]", lambda found: f"\\u{ord(found[0]):04x}", json.dumps(config, ensure_ascii=False))
    request = server_side_apply.ApplyRequest(body=text.encode(), writer=writer, **more)
    return copy_object(server_side_apply.apply_to(rt, copy_object(old), request)[0])  # type: ignore[no-any-return]


def leaves(value: Any, kind: Type, path: tuple[str, ...] = ()) -> Leaves:
    """Every path a manager of this value owns, and the value there; containers have no value of their own."""
    found: Leaves = {}
    if isinstance(value, dict) and value and not isinstance(kind, AnyType) and not getattr(kind, "atomic", False):
        for name, item in value.items():
            below = kind.fields[name].type if isinstance(kind, ObjectType) else getattr(kind, "value", kind)
            found |= leaves(item, below, (*path, name))
        return found
    if isinstance(value, list) and isinstance(kind, ListType) and kind.list_type != types.ATOMIC:
        for item in value:
            if kind.list_type == types.SET:
                found[(*path, f"={item}")] = item
                continue
            key = (*path, str([item.get(name, {"protocol": "TCP"}.get(name)) for name in kind.keys]))
            found |= {key: "an item", **leaves(item, kind.item, key)}
        return found
    return {path: value}


def owned(config: Object, rt: ResourceType) -> Leaves:
    """Return the fields that a manager owns by a configuration: all but its type and its name."""
    nobodys = (("apiVersion",), ("kind",), ("metadata", "name"))
    return {path: value for path, value in leaves(config, kind_of(rt)).items() if path not in nobodys}


@pytest.mark.parametrize("rt", KINDS, ids=repr)
@given(data=st.data())
@example_settings(6)
def test_applying_again_changes_nothing(rt: ResourceType, data: st.DataObject) -> None:
    config = data.draw(configurations(rt))
    once = apply(rt, None, config, "m", 1)
    assume(once["metadata"].get("managedFields"))  # otherwise an apply counts as the first
    twice = apply(rt, once, config, "m", 2)
    for obj in (once, twice):
        entries = obj["metadata"].pop("managedFields", [])
        obj["entries"] = [{name: value for name, value in entry.items() if name != "time"} for entry in entries]
    assert twice == once


@pytest.fixture
def without_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove defaulted fields: they have no owner and may stay or go, and the model has no defaults."""
    monkeypatch.setattr(conversion, "apply", lambda obj, kind: None)


@pytest.mark.parametrize("rt", KINDS, ids=repr)
@pytest.mark.usefixtures("without_defaults")
@given(data=st.data())
@example_settings(6)
def test_two_managers(rt: ResourceType, data: st.DataObject) -> None:
    first, second = (canonical(rt, data.draw(configurations(rt))) for _ in range(2))
    if data.draw(st.booleans()):
        second = canonical(rt, data.draw(part_of(first, second)))
    ours, theirs = owned(first, rt), owned(second, rt)
    live = apply(rt, None, first, "a", 1)
    disputed = {path for path in ours.keys() & theirs.keys() if ours[path] != theirs[path]}
    assert conflicts(rt, live, second) == len(disputed), disputed
    both = apply(rt, live, second, "b", 2, force=True)
    held = leaves(both, kind_of(rt))
    assert not {path for path, value in (ours | theirs).items() if held.get(path) != value and not is_empty(value)}
    alone = apply(rt, both, {"apiVersion": rt.api_version, "kind": rt.kind, "metadata": {"name": "a"}}, "a", 3)
    assert [entry["manager"] for entry in alone["metadata"].get("managedFields", ())] in (["b"], [])
    left = leaves(alone, kind_of(rt))
    for path, value in theirs.items():
        assert left.get(path) == value or is_empty(value), path
    gone = {path for path, value in ours.items() if path not in theirs and not is_empty(value)}
    assert not {path for path in gone & left.keys() if not is_empty(left[path])}


def conflicts(rt: ResourceType, live: Object, config: Object) -> int:
    """Return the number of conflicts of a manager without force."""
    try:
        apply(rt, live, config, "b", 2)
    except StatusError as refusal:
        return len((refusal.details or {})["causes"])
    return 0


def is_empty(value: Any) -> bool:
    """Zero values come and go with the struct that is written with them."""
    return value in ("", 0, False, "0", None) or value == {} or value == []


def canonical(rt: ResourceType, config: Object) -> Object:
    found: Object = copy_object(config)
    check.check(found, kind_of(rt))
    empties.make_null(found, kind_of(rt))
    return found


@st.composite
def part_of(draw: st.DrawFn, one: Any, other: Any) -> Any:
    """Some fields of one, and some of the other's: so that two configurations meet."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return copy_object(one)
    result = {}
    for name in dict.fromkeys((*one, *other)):
        if name in ("apiVersion", "kind", "name") or draw(st.integers(0, 2)):
            result[name] = draw(part_of(one.get(name, other.get(name)), other.get(name, one.get(name))))
    return result


@pytest.mark.parametrize("rt", KINDS, ids=repr)
@given(data=st.data())
@example_settings(4)
def test_field_sets_in_every_representation(rt: ResourceType, data: st.DataObject) -> None:
    kind = kind_of(rt)
    drawn = [data.draw(configurations(rt)) for _ in range(2)]
    fields, other = (typed_values.field_set(config, kind) for config in drawn)
    for config, found in zip(drawn, (fields, other), strict=True):
        assert typed_readers.read(config, kind) == (None if typed_values.validate(config, kind) else found)
    assert json.loads(json.dumps(fields)) == fields
    entry = {
        "manager": "m",
        "operation": "Apply",
        "apiVersion": rt.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    assert managers._readable(entry)
    obj = {"apiVersion": rt.api_version, "kind": rt.kind, "metadata": {"name": "a", "managedFields": [entry]}}
    check.check(obj, kind)
    assert obj["metadata"]["managedFields"] == [entry]
    if protobuf.supports(rt.api_version, rt.kind):
        assert protobuf.decode(protobuf.encode(obj))["metadata"]["managedFields"] == [entry]
    assert structured_merge.reconcile(fields, kind) == fields
    together, apart = field_sets.union(fields, other), field_sets.difference(fields, other)
    shared = field_sets.intersection(fields, other)
    assert field_sets.union(apart, shared) == fields
    assert field_sets.difference(together, other) == apart
    assert set(paths(together)) == set(paths(fields)) | set(paths(other))


@pytest.mark.parametrize("rt", KINDS, ids=repr)
@given(data=st.data())
@example_settings(6)
def test_other_managers_lose_the_same_fields_by_a_comparison_of_theirs_alone(
    rt: ResourceType, data: st.DataObject
) -> None:
    kind = kind_of(rt)
    before, after, theirs = (canonical(rt, data.draw(configurations(rt))) for _ in range(3))
    if data.draw(st.booleans()):
        after = data.draw(part_of(before, after))
    owner = data.draw(st.sampled_from((theirs, before, after)))
    by_update, _ = field_sets.compare({}, owner, kind)  # with the maps and lists around the fields
    fields = data.draw(st.sampled_from((typed_values.field_set(owner, kind), by_update)))
    whole = field_sets.compare(before, after, kind)
    alone = changes_within(before, after, kind, fields)
    for combine in (field_sets.intersection, field_sets.difference):
        for all_of, some_of in zip(whole, alone, strict=True):
            assert combine(fields, some_of) == combine(fields, all_of)
