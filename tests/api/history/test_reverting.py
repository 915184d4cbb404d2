"""A user's changes undone, with the later changes of others kept."""

from __future__ import annotations

import copy
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.history.differences import same
from kubechronicle.api.history.reverting import Conflict, Undone, merged_objects, undo

KEY = ("apps", "Deployment", "shop", "web")


def state(uid: str = "u", *, containers: Any = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop", "uid": uid, "resourceVersion": "9"}
    containers = containers or [{"name": "web", "image": "web:1"}]
    template = {"spec": {"containers": containers}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"replicas": 3, **spec, "template": template},
    }


def image(name: str) -> list[dict[str, Any]]:
    return [{"name": "web", "image": name}]


def change(before: Any, after: Any, revision: int = 5) -> Undone:
    operation: Literal["Create", "Update", "Delete"] = "Update"
    if before is None or after is None:
        operation = "Delete" if after is None else "Create"
    return Undone(revision, operation, before, after)


def test_what_others_set_later_is_kept() -> None:
    mine = change(state(), state(replicas=5, containers=image("web:2")))
    step, conflicts = undo(KEY, [mine], state(replicas=5, containers=image("web:3")))
    assert step is not None
    assert [(each.field, each.old, each.new) for each in step.changes] == [("spec.replicas", 5, 3)]
    field = "spec.template.spec.containers[name=web].image"
    assert conflicts == [Conflict(field, "it was changed since", 5)]


def test_a_field_that_others_have_set_to_the_same_value_is_kept() -> None:
    mine = change(state(), state(replicas=5, paused=True))
    live = state(replicas=5, paused=True)
    others = [(7, "spec.replicas"), (8, "spec.replicas"), (9, "status.replicas")]
    step, conflicts = undo(KEY, [mine], live, others)
    assert step is not None
    assert [(each.op, each.field) for each in step.changes] == [("remove", "spec.paused")]
    assert conflicts == [Conflict("spec.replicas", "it was changed since", 5)]
    before = [(4, "spec.replicas")]
    assert undo(KEY, [mine], live, before)[1] == []


@pytest.mark.parametrize("field", ["spec", "spec.template.spec.containers", "spec.template.spec.containers[name=web]"])
def test_a_part_or_the_whole_of_what_others_have_set_is_kept(field: str) -> None:
    mine = change(state(), state(containers=image("web:2")))
    step, conflicts = undo(KEY, [mine], state(containers=image("web:2")), [(7, field)])
    assert step is None
    assert conflicts == [Conflict("spec.template.spec.containers[name=web].image", "it was changed since", 5)]


def test_several_changes_with_another_between() -> None:
    """The value of the other user comes back; the user's first change, below it, is a conflict."""
    first, second = change(state(replicas=1), state(replicas=2), 5), change(state(replicas=7), state(replicas=8), 9)
    step, conflicts = undo(KEY, [first, second], state(replicas=8))
    assert step is not None
    assert [(each.field, each.new) for each in step.changes] == [("spec.replicas", 7)]
    assert [each.revision for each in conflicts] == [5]
    step, conflicts = undo(KEY, [change(state(replicas=1), state(replicas=2)), second], state(replicas=3))
    assert (step, len(conflicts)) == (None, 2)


def test_creations_and_deletions() -> None:
    made, last = state(), state(replicas=5)
    step, conflicts = undo(KEY, [change(None, made)], state())
    assert (step and step.action, conflicts) == ("delete", [])
    step, conflicts = undo(KEY, [change(None, made)], last)
    assert (step, [each.others for each in conflicts]) == (None, [("spec.replicas",)])
    step, conflicts = undo(KEY, [change(made, last), change(last, None)], None)
    assert step is not None
    assert (step.action, step.then and step.then["spec"]["replicas"], conflicts) == ("create", 3, [])
    step, conflicts = undo(KEY, [change(last, None)], state("other"))
    assert (step, [each.why for each in conflicts]) == (None, ["another object of this name was created since"])
    assert undo(KEY, [change(None, made), change(made, None)], None) == (None, [])


def test_a_mark_for_deletion() -> None:
    marked = state()
    marked["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    step, _ = undo(KEY, [change(state(), marked)], None)
    assert (step and step.action) == "create"
    step, conflicts = undo(KEY, [change(state(), marked)], marked)
    assert (step, [each.why for each in conflicts]) == (None, ["it is still being deleted"])


@pytest.mark.parametrize(
    ("base", "wanted", "ours", "merged", "conflicts"),
    [
        ({"a": 1, "b": 1}, {"a": 1}, {"a": 2, "b": 1}, {"a": 2}, []),
        ({"l": {"a": 1}}, {}, {"l": {"a": 1, "b": 2}}, {"l": {"b": 2}}, []),
        ({"l": {"a": 1}}, {}, {"l": {"a": 1}}, {}, []),
        ({}, {"l": {"a": 1}}, {"l": {"b": 2}}, {"l": {"b": 2, "a": 1}}, []),
        ({"l": [1, 2]}, {"l": [1]}, {"l": [1, 2, 3]}, {"l": [1, 2, 3]}, ["l"]),
        ({"x": 1}, {"x": 2}, {}, {}, ["x"]),
        ({"c": image("1")}, {"c": []}, {"c": image("2")}, {"c": image("2")}, ["c[name=web]"]),
        ({"c": [*image("1"), {"name": "b"}]}, {"c": image("1")}, {"c": [{"name": "b"}]}, {"c": []}, []),
    ],
)
def test_merges(base: Any, wanted: Any, ours: Any, merged: Any, conflicts: list[str]) -> None:
    assert merged_objects(base, wanted, ours) == (merged, conflicts)


VALUES = st.recursive(
    st.integers(0, 3), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner)
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES)


@given(OBJECTS, OBJECTS, OBJECTS)
def test_a_merge_without_other_changes_is_the_wanted_state(base: Any, wanted: Any, ours: Any) -> None:
    kept = copy.deepcopy((base, wanted, ours))
    assert same(merged_objects(base, wanted, base)[0], wanted)
    assert same(merged_objects(base, base, ours)[0], ours)
    assert same(merged_objects(base, wanted, wanted)[0], wanted)
    merged_objects(base, wanted, ours)
    assert (base, wanted, ours) == kept


def test_an_object_that_its_user_deleted_and_made_again_was_replaced() -> None:
    red, blue = state(replicas=1), state("v", replicas=2)
    step, conflicts = undo(KEY, [change(red, None, 5), change(None, blue, 6)], blue)
    assert step is not None
    assert (step.action, conflicts, step.why) == ("update", [], "it was created again since")
    assert [(each.field, each.new) for each in step.changes] == [("spec.replicas", 1)]


def test_the_end_of_a_deletion_belongs_to_it() -> None:
    """It was marked, lost its finalizer and was removed before it was made again."""
    red, blue = state(replicas=1), state("v", replicas=2)
    marked = copy.deepcopy(red)
    marked["metadata"] |= {"deletionTimestamp": "2026-11-21T00:00:00Z", "finalizers": ["a.example.com/b"]}
    freed = copy.deepcopy(marked)
    freed["metadata"]["finalizers"] = []
    ends = [change(red, marked, 5), change(marked, freed, 6), change(freed, None, 7)]
    for deletion in (ends[:1], ends[:2], ends):
        step, conflicts = undo(KEY, [*deletion, change(None, blue, 8)], blue)
        assert (step and step.action, conflicts) == ("update", [])
        step, conflicts = undo(KEY, deletion, None)
        assert step is not None
        assert (step.action, step.then, conflicts) == ("create", red, [])


def test_a_replaced_object_keeps_what_others_changed_since() -> None:
    red, blue = state(replicas=1, containers=image("web:1")), state("v", replicas=2, containers=image("web:1"))
    now = state("v", replicas=2, containers=image("web:9"))
    step, conflicts = undo(KEY, [change(red, None, 5), change(None, blue, 6)], now)
    assert step is not None
    assert ([each.field for each in step.changes], conflicts) == (["spec.replicas"], [])
    later = state("v", replicas=7)
    step, conflicts = undo(KEY, [change(red, None, 5), change(None, blue, 6)], later)
    assert (step, [each.field for each in conflicts]) == (None, ["spec.replicas"])


def owned(obj: dict[str, Any], uid: str) -> dict[str, Any]:
    """Return an object with an owner of this uid."""
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [reference]}}


def test_undoing_twice_does_nothing() -> None:
    """After the first time, the object and its owner have other uids."""
    red, blue = state("r", replicas=1), state("b", replicas=2)
    for made in ([change(red, None, 5)], [change(red, None, 5), change(None, blue, 6)]):
        assert undo(KEY, made, state("x", replicas=1)) == (None, [])
        assert undo(KEY, made, state("x", replicas=3))[1] != []
    made = [change(owned(red, "old"), None, 5), change(None, blue, 6)]
    assert undo(KEY, made, owned(state("b", replicas=1), "new")) == (None, [])
    assert undo(KEY, made, owned(state("x", replicas=1), "new")) == (None, [])


def test_the_uid_of_an_owner_is_no_change() -> None:
    """It stays as it is: with a former one, the garbage collector would delete the object."""
    step, conflicts = undo(KEY, [change(owned(state(), "old"), owned(state(replicas=5), "new"))], owned(state(), "new"))
    assert (step, conflicts) == (None, [])
    mine = change(owned(state(), "old"), state(replicas=5))
    step, conflicts = undo(KEY, [mine], owned(state(replicas=5), "new"))
    assert step is not None
    assert ([each.field for each in step.changes], conflicts) == (["spec.replicas"], [])


@pytest.mark.parametrize(
    ("changes", "live", "action"),
    [
        ("-r +b -b", None, "create"),  # the last deletion, too
        ("+r -r +b", "b", "delete"),  # it did not exist before
        ("+r -r", None, None),
        ("-r +b", None, None),  # another user has deleted it since
        ("-r +b", "x", None),  # and created it
        ("-r", "x", None),
    ],
)
def test_chains_of_deletions_and_creations(changes: str, live: str | None, action: str | None) -> None:
    states = {name: state(name) for name in "rbx"}
    made = [
        change(states[name], None, number) if sign == "-" else change(None, states[name], number)
        for number, (sign, name) in enumerate(changes.split(), 5)
    ]
    step, _ = undo(KEY, made, states[live] if live else None)
    assert (step.action if step is not None else None) == action
    if action == "create":
        assert step is not None
        assert step.then == states["r"]


def test_namespaces_and_definitions_are_not_deleted() -> None:
    """They may have objects of others in them."""
    for key in (("", "Namespace", "", "web"), ("apiextensions.k8s.io", "CustomResourceDefinition", "", "web")):
        step, conflicts = undo(key, [change(None, state())], state())
        assert step is None
        assert "would be deleted with it" in conflicts[0].why
