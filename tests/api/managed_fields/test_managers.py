"""Field sets and the bookkeeping of managers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.managed_fields import field_sets, managers
from kubechronicle.api.managed_fields.managers import Writer
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema import check, types

CONFIG_MAP = types.object_type("io.k8s.api.core.v1.ConfigMap")
POD = types.object_type("io.k8s.api.core.v1.Pod")
REPLICA_SET = types.object_type("io.k8s.api.apps.v1.ReplicaSet")

LEAF: dict[str, Any] = {}


def members(fields: dict[str, Any], path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Return the paths that are members: the meaning of a set."""
    found = set()
    for element, node in fields.items():
        if element == ".":
            found.add(path)
            continue
        below = (*path, element)
        if not node:
            found.add(below)
        found |= members(node, below)
    return found


paths = st.lists(st.sampled_from(["f:a", "f:b", "k:{}", "v:1"]), min_size=1, max_size=3).map(tuple)


def as_set(chosen: set[tuple[str, ...]]) -> dict[str, Any]:
    built: dict[str, Any] = {}
    for path in chosen:
        single: dict[str, Any] = {}
        for element in reversed(path):
            single = {element: single}
        built = field_sets.union(built, single)
    return built


@given(st.sets(paths), st.sets(paths))
def test_set_algebra(one: set[tuple[str, ...]], other: set[tuple[str, ...]]) -> None:
    left, right = as_set(one), as_set(other)
    assert members(left) == one
    assert members(field_sets.union(left, right)) == one | other
    assert members(field_sets.difference(left, right)) == one - other
    assert members(field_sets.intersection(left, right)) == one & other


def writer(manager: str, *, second: int = 0, subresource: str = "") -> Writer:
    now = f"2026-01-01T00:00:{second:02d}Z"
    return Writer(manager=manager, api_version="v1", subresource=subresource, now=now)


def config_map(**data: str) -> dict[str, Any]:
    obj: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    if data:
        obj["data"] = data
    return obj


def owned(obj: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", ())}


def created(manager: str = "a", **data: str) -> dict[str, Any]:
    obj = config_map(**data)
    managers.track(CONFIG_MAP, None, obj, writer=writer(manager))
    obj["metadata"]["uid"] = "u"
    return obj


def updated(old: dict[str, Any], new: dict[str, Any], manager: str, second: int = 1) -> dict[str, Any]:
    managers.track(CONFIG_MAP, old, new, writer=writer(manager, second=second))
    return new


def test_a_creator_owns_what_it_sets_but_not_the_name() -> None:
    assert owned(created(k="v")) == {"a": {"f:data": {".": {}, "f:k": {}}}}
    assert "managedFields" not in created()["metadata"]


def test_another_writer_takes_what_it_changes() -> None:
    new = updated(created(k="1", l="2"), config_map(k="1", l="3", m="4"), "b")
    assert owned(new) == {
        "a": {"f:data": {".": {}, "f:k": {}}},
        "b": {"f:data": {"f:l": {}, "f:m": {}}},
    }


def test_removed_fields_are_nobodys_and_an_empty_entry_goes() -> None:
    new = updated(created(k="1"), config_map(), "b")
    assert "managedFields" not in new["metadata"]


def test_the_time_moves_only_with_fields_taken() -> None:
    old = created(k="1", l="2")
    removal = updated(old, config_map(k="1"), "a", second=5)
    assert removal["metadata"]["managedFields"][0]["time"] == "2026-01-01T00:00:00Z"
    change = updated(old, config_map(k="9", l="2"), "a", second=5)
    assert change["metadata"]["managedFields"][0]["time"] == "2026-01-01T00:00:05Z"


def test_an_object_without_entries_stays_without() -> None:
    old = config_map()
    old["metadata"]["uid"] = "u"
    assert "managedFields" not in updated(old, config_map(k="v"), "a")["metadata"]


def test_one_empty_entry_resets_and_an_empty_list_does_not() -> None:
    reset = config_map(k="v")
    reset["metadata"]["managedFields"] = [{}]
    assert "managedFields" not in updated(created(k="v"), reset, "b")["metadata"]
    kept = config_map(k="v")
    kept["metadata"]["managedFields"] = []
    assert owned(updated(created(k="v"), kept, "b")) == {"a": {"f:data": {".": {}, "f:k": {}}}}


def test_subresources_have_entries_of_their_own() -> None:
    old: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"replicas": 1}}
    check.check(old, REPLICA_SET)
    managers.track(REPLICA_SET, None, old, writer=writer("a"), reset=(("status",),))
    new = copy_object(old)
    new["status"] = {"replicas": 2}
    new["spec"]["replicas"] = 9
    managers.track(REPLICA_SET, old, new, writer=writer("a", second=1, subresource="status"), reset=(("spec",),))
    entries = new["metadata"]["managedFields"]
    assert [entry.get("subresource") for entry in entries] == [None, "status"]
    assert entries[1]["fieldsV1"] == {"f:status": {"f:replicas": {}}}


def test_keyed_lists_sets_and_atomic_values() -> None:
    pod: dict[str, Any] = {
        "metadata": {"name": "p", "finalizers": ["x.io/f"]},
        "spec": {
            "containers": [{"name": "c", "args": ["a"], "ports": [{"containerPort": 80, "protocol": "TCP"}]}],
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "k"}],
        },
    }
    check.check(pod, POD)
    managers.track(POD, None, pod, writer=writer("a"))
    fields = owned(pod)["a"]
    assert fields["f:metadata"] == {"f:finalizers": {".": {}, 'v:"x.io/f"': {}}}
    assert fields["f:spec"] == {
        "f:containers": {
            'k:{"name":"c"}': {
                ".": {},
                "f:name": {},
                "f:args": {},
                "f:resources": {},
                "f:ports": {
                    ".": {},
                    'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}, "f:protocol": {}},
                },
            }
        },
        "f:nodeSelector": {},
        "f:tolerations": {},
    }


def test_elements_are_escaped_for_html() -> None:
    pod: dict[str, Any] = {
        "metadata": {"name": "p", "finalizers": ["<"]},
        "spec": {"containers": [{"name": "a<\\b>\b&"}]},
    }
    managers.track(POD, None, pod, writer=writer("a"))
    fields = owned(pod)["a"]
    assert set(fields["f:spec"]["f:containers"]) == {'k:{"name":"a\\u003c\\\\b\\u003e\\u0008\\u0026"}'}
    assert set(fields["f:metadata"]["f:finalizers"]) == {".", 'v:"\\u003c"'}


def test_many_updaters_are_merged_into_one_entry() -> None:
    obj = created("m0", k="0")
    for number in range(1, 14):
        new = config_map(k="0", **{f"k{n}": "v" for n in range(1, number + 1)})
        obj = updated(obj, new, f"m{number:02d}", second=number)
        obj["metadata"]["uid"] = "u"
    entries = obj["metadata"]["managedFields"]
    assert len(entries) <= managers.MAX_UPDATE_MANAGERS
    assert managers.ANCIENT in {entry["manager"] for entry in entries}
    union: dict[str, Any] = {}
    for entry in entries:
        union = field_sets.union(union, entry["fieldsV1"])
    assert len(union["f:data"]) == 15


@pytest.mark.parametrize("entry", [{"operation": "X"}, {"operation": "Update", "fieldsType": "FieldsV2"}])
def test_unreadable_entries_of_a_client_are_ignored(entry: dict[str, Any]) -> None:
    new = config_map(k="v")
    new["metadata"]["managedFields"] = [entry]
    assert owned(updated(created(k="v"), new, "b")) == {"a": {"f:data": {".": {}, "f:k": {}}}}


@pytest.mark.parametrize(
    ("before", "after", "changed", "removed"),
    [
        (["a/b"], ["a/b", "a/b"], True, True),
        (["a/b", "a/b"], ["a/b"], True, True),
        (["a/b", "a/b"], ["a/b", "a/b"], False, False),
        (["a/b", "a/b"], ["a/b", "a/b", "a/b"], True, False),
        (["a/b"], ["a/b"], False, False),
    ],
)
def test_a_repeated_item_is_owned_anew_when_the_number_of_its_items_changes(
    before: list[str], after: list[str], *, changed: bool, removed: bool
) -> None:
    old, new = ({"metadata": {"finalizers": items}} for items in (before, after))
    item = {"f:metadata": {"f:finalizers": {'v:"a/b"': LEAF}}}
    assert field_sets.compare(old, new, CONFIG_MAP) == (item if changed else {}, item if removed else {})


def test_the_entry_of_another_manager_keeps_fields_without_owners() -> None:
    entry = {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    given = [{**entry, "fieldsV1": {"f:metadata": {}}}]
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": given}, "data": {}}
    managers.track(CONFIG_MAP, None, obj, writer=writer("y"))
    assert given[0] in obj["metadata"]["managedFields"]  # type: ignore[index]


@pytest.mark.parametrize("old", [None, {"metadata": {"name": "a"}}])
def test_entries_in_versions_that_the_kind_does_not_have_are_dropped(old: Any) -> None:
    entry = {"manager": "x", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1"}
    given = [{**entry, "fieldsV1": {"f:data": {}}}]
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "managedFields": given},
        "data": {"k": "v"},
    }
    managers.track(CONFIG_MAP, old, obj, writer=writer("y"), is_version=lambda version: version == "v1")
    assert [each["manager"] for each in obj["metadata"]["managedFields"]] == ["y"]  # type: ignore[index]


def test_a_newer_time_that_moves_an_entry_is_no_other_difference() -> None:
    entry = {"operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}
    first = [{**entry, "manager": "a", "time": "1"}, {**entry, "manager": "b", "time": "1"}]
    later = managers.ordered([{**entry, "manager": "a", "time": "2"}, first[1]])
    assert [each["manager"] for each in later] == ["b", "a"]
    assert managers.equal_but_times(later, first)
    assert not managers.equal_but_times(later, [first[0], {**first[1], "fieldsV1": {"f:metadata": {}}}])
