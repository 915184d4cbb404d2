"""Blame: the revision that last set each field, computed from successive states."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.history.differences import same
from kubechronicle.ops.client.commands.blame import Marked, fields, update_marks, without_bookkeeping


def blamed(*states: Any) -> dict[str, int]:
    marked: Marked | None = None
    for revision, state in enumerate(states, 1):
        marked = update_marks(marked, state, revision)
    assert marked is not None
    return {field: each.revision for field, each in fields(marked)}


def test_each_field_has_who_set_it_last() -> None:
    assert blamed(
        {"spec": {"replicas": 1, "paused": True}},
        {"spec": {"replicas": 2, "paused": True}},
        {"spec": {"replicas": 2, "paused": True}, "data": {"a": "b"}},
    ) == {"data.a": 3, "spec.paused": 1, "spec.replicas": 2}


def test_what_was_set_back_is_whose_who_set_it_back() -> None:
    assert blamed({"a": 1}, {"a": 2}, {"a": 1}) == {"a": 3}
    assert blamed({"a": 1}, {}, {"a": 1}) == {"a": 3}


def test_true_is_not_one() -> None:
    assert blamed({"a": 1}, {"a": True}) == {"a": 2}


def test_named_items_keep_their_marks_wherever_they_stand() -> None:
    web, envoy = {"name": "web", "image": "web:1"}, {"name": "envoy", "image": "envoy:1"}
    assert blamed({"c": [web]}, {"c": [envoy, web]}, {"c": [envoy, {**web, "image": "web:2"}]}) == {
        "c[name=envoy].image": 2,
        "c[name=envoy].name": 2,
        "c[name=web].image": 3,
        "c[name=web].name": 1,
    }


def test_items_without_names_are_matched_from_both_ends() -> None:
    assert blamed({"args": ["a", "b", "d"]}, {"args": ["a", "b", "c", "d"]}) == {
        "args[0]": 1,
        "args[1]": 1,
        "args[2]": 2,
        "args[3]": 1,
    }
    assert blamed({"args": ["a", "b", "c"]}, {"args": ["a", "x", "c"]}) == {"args[0]": 1, "args[1]": 2, "args[2]": 1}
    assert blamed({"args": ["a", "b"]}, {"args": []}) == {"args": 1}


def test_what_becomes_of_another_type_is_new() -> None:
    assert blamed({"a": {"b": 1}}, {"a": [1]}, {"a": {"b": 1}}) == {"a.b": 3}


def test_bookkeeping_is_left_out() -> None:
    state = {"metadata": {"name": "a", "resourceVersion": "7", "managedFields": []}}
    assert without_bookkeeping(state) == {"metadata": {"name": "a"}}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "name"]), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "spec"]), VALUES, max_size=3)


def plain(marked: Marked) -> Any:
    if isinstance(marked.members, tuple):
        return [plain(each) for each in marked.members]
    return {name: plain(each) for name, each in marked.members.items()} if marked.members is not None else marked.value


@given(st.lists(OBJECTS, min_size=1, max_size=5))
def test_the_marks_are_of_the_last_state(states: list[Any]) -> None:
    marked: Marked | None = None
    for revision, state in enumerate(states, 1):
        before, marked = marked, update_marks(marked, state, revision)
        assert same(plain(marked), state)
        assert same(marked.value, state)
        newest = [each for _, each in fields(marked) if each.revision == revision]
        # Nothing is new where nothing changed.
        if before is not None and same(before.value, state):
            assert not newest
