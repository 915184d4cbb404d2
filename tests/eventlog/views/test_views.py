"""Views, the sorted store and the window of recent events: pure, no log."""

from __future__ import annotations

import random
from collections.abc import Sequence

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.eventlog.errors import LogCorrupt
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Head, Key, Operation, Record
from kubechronicle.eventlog.testing import commit, delete, describe_simply, put
from kubechronicle.eventlog.views import sorted_store
from kubechronicle.eventlog.views import view as view_module
from kubechronicle.eventlog.views.sorted_store import SortedStore, merge, page_of
from kubechronicle.eventlog.views.views import Entry, Views, entry_of, seal

PLACES = st.tuples(st.sampled_from("ab"), st.text("pqrs", min_size=1, max_size=3))  # (namespace, name)


def pod(name: str, namespace: str = "a") -> Key:
    return Key("pods", namespace, name)


class World:
    """A store, and views to which the test applies its records."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.views = Views(describe_simply)

    def put(self, key: Key, **details: str) -> Record:
        current = self.store.current(key)
        (record,) = commit(self.store, put(key, expected=current.revision if current else 0, **details))  # type: ignore[arg-type]
        self.views.apply([record])
        return record

    def delete(self, key: Key) -> Record:
        current = self.store.current(key)
        assert current is not None
        (record,) = commit(self.store, delete(key, expected=current.revision))
        self.views.apply([record])
        return record

    def load(self, views: Views) -> None:
        entries: dict[str, list[Entry]] = {}
        for record in self.store.live():
            entries.setdefault(record.key.resource, []).append(entry_of(record, describe_simply))
        views.load(entries, self.store.head())


def test_seal_puts_the_revision_first_in_metadata_only_once() -> None:
    body = b'{"apiVersion":"v1","kind":"K","metadata":{"name":"a"},"spec":{"template":{"metadata":{"name":"b"}}}}'
    sealed = seal(body, 12)
    assert sealed.startswith(b'{"apiVersion":"v1","kind":"K","metadata":{"resourceVersion":"12","name":"a"}')
    assert orjson.loads(sealed)["spec"]["template"]["metadata"] == {"name": "b"}


def test_an_entry_holds_the_object_as_of_its_revision() -> None:
    world = World()
    world.put(pod("x"), text="one")
    world.put(pod("x"), text="two")
    entry = world.views["pods"].get("a", "x")
    assert entry is not None
    assert (entry.revision, entry.create_revision, entry.version, entry.uid) == (2, 1, 2, "uid-of-x")
    assert entry.object()["metadata"]["resourceVersion"] == "2"
    assert entry.object()["text"] == "two"
    assert entry.object() is not entry.object()


def test_a_delete_event_carries_the_last_state_at_its_own_revision() -> None:
    world = World()
    world.put(pod("x"))
    world.delete(pod("x"))
    event = world.views["pods"].events[-1]
    assert event.operation is Operation.DELETE
    assert event.entry.object()["metadata"]["resourceVersion"] == "2"
    assert event.previous is not None
    assert event.previous.revision == 1
    assert world.views["pods"].get("a", "x") is None
    assert world.views["pods"].entries() == ()


def test_entries_are_ordered_as_etcd_orders_keys() -> None:
    world = World()
    names = [pod("b", "b"), pod("a", "b"), pod("z", "a"), pod("é", "a"), pod("B", "a"), pod("a-", "a"), pod("a0", "a")]
    for key in names:
        world.put(key)
    view = world.views["pods"]
    expected = sorted((key[1:] for key in names), key=lambda key: (key[0].encode(), key[1].encode()))
    assert [entry.key[1:] for entry in view.entries()] == expected
    assert [entry.key.name for entry in view.entries("b")] == ["a", "b"]
    assert view.entries("c") == ()
    assert (view.count(), view.count("a"), view.count("c")) == (7, 5, 0)


def test_a_list_is_shared_until_the_next_change_and_never_changes() -> None:
    world = World()
    world.put(pod("x"))
    before = world.views["pods"].entries()
    assert world.views["pods"].entries() is before
    world.put(pod("y"))
    assert len(before) == 1
    assert len(world.views["pods"].entries()) == 2


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.sampled_from("pqrst"), st.booleans()), max_size=40),
    st.sampled_from(["", "a", "b", "d"]),
    st.one_of(st.none(), st.tuples(st.sampled_from(["", "a", "b", "c"]), st.sampled_from(["", "p", "r", "t", "z"]))),
    st.integers(0, 6),
)
def test_the_sorted_store_equals_a_sorted_dictionary(
    changes: list[tuple[str, str, bool]], namespace: str, after: tuple[str, str] | None, limit: int
) -> None:
    mine, model = SortedStore(), {}
    for revision, (where, name, present) in enumerate(changes, 1):
        entry = Entry(Key("r", where, name), "u", revision, 1, 1, b"", {}, {})
        if present:
            mine.put(entry)
            model[where, name] = entry
        elif (where, name) in model:
            mine.remove(where, name)
            del model[where, name]
    inside = [model[key] for key in sorted(model) if namespace in ("", key[0])]
    if mine.count:
        assert list(mine.all(namespace)) == inside
    assert mine.size(namespace) == len(inside)
    following = [entry for entry in inside if after is None or entry.key[1:] > after][:limit]
    assert list(mine.page(namespace, after, limit)) == following
    assert list(page_of(tuple(inside), after, limit)) == following
    assert list(SortedStore(model.values()).page(namespace, after, limit)) == following


@pytest.mark.parametrize("factor", [0, 8, 1_000_000])
@given(st.dictionaries(PLACES, st.integers(), max_size=40), st.dictionaries(PLACES, st.booleans(), max_size=10))
def test_merging_equals_replacing_in_a_sorted_dictionary(
    factor: int, now: dict[tuple[str, str], int], changed: dict[tuple[str, str], bool]
) -> None:
    def entry(key: tuple[str, str], revision: int) -> Entry:
        return Entry(Key("r", *key), "u", revision, 1, 1, b"", {}, {})

    entries = [entry(key, now[key]) for key in sorted(now)]
    past = {key: entry(key, -1) if present else None for key, present in changed.items()}
    model = now | {key: -1 for key, present in changed.items() if present}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_store, "MERGE_FACTOR", factor)
        merged = [(each.key[1:], each.revision) for each in merge(entries, past)]
    assert merged == sorted((key, revision) for key, revision in model.items() if changed.get(key, True))


def test_every_snapshot_equals_the_state_recorded_at_its_revision() -> None:
    world, chance = World(), random.Random(5)
    past: dict[int, Sequence[Entry]] = {0: ()}
    keys = [pod(name, namespace) for namespace in "ab" for name in "xyz"]
    for revision in range(1, 120):
        key = chance.choice(keys)
        if world.store.current(key) and chance.random() < 0.4:
            world.delete(key)
        else:
            world.put(key, text=str(revision))
        past[revision] = world.views["pods"].entries()
    for revision, state in past.items():
        snapshot = world.views["pods"].snapshot(revision)
        assert snapshot is not None
        assert [(each.key, each.revision) for each in snapshot] == [(each.key, each.revision) for each in state]


def test_events_are_bounded_by_count_and_snapshots_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "RECENT_EVENTS", 32)
    world = World()
    for number in range(200):
        world.put(pod("x"), text=str(number))
        view = world.views["pods"]
        assert len(view.events) <= 32
        assert view.events[0].revision == view.held_since + 1 or view.held_since == 0
    assert view.snapshot(view.held_since - 1) is None
    assert [entry.revision for entry in view.snapshot(view.held_since) or ()] == [view.held_since]


def test_events_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "RECENT_BYTES", 100_000)
    world = World()
    for number in range(50):
        world.put(pod(f"x{number}"), text="large " * 1000)
        assert world.views["pods"].statistics().event_bytes <= 100_000
    assert 5 < len(world.views["pods"].events) < 50
    assert world.views["pods"].count() == 50
    world.put(pod("huge"), text="x" * 300_000)
    assert world.views["pods"].held_since == world.views.applied


def test_compacted_history_leaves_memory_by_resource() -> None:
    world = World()
    for number in range(10):
        world.put(pod(str(number)))
        world.put(Key("leases", "a", str(number)))
    world.views.forget(Head(revision=20, compacted=4, compacted_of={"leases": 11}))
    assert world.views["pods"].held_since == 4
    assert world.views["leases"].held_since == 11
    assert world.views["leases"].snapshot(10) is None
    assert len(world.views["leases"].snapshot(11) or ()) == 5
    assert [event.revision for event in world.views["leases"].events] == [12, 14, 16, 18, 20]


def test_a_gap_in_the_log_is_corruption() -> None:
    world = World()
    commit(world.store, put(pod("x"), expected=0))
    (second,) = commit(world.store, put(pod("y"), expected=0))
    with pytest.raises(LogCorrupt, match="revision 1 is missing"):
        world.views.apply([second])


def test_a_record_that_does_not_follow_its_key_is_corruption() -> None:
    world, other = World(), MemoryStore()
    world.put(pod("x"))
    commit(other, put(pod("z"), expected=0))
    (second,) = commit(other, put(pod("x"), expected=0))
    with pytest.raises(LogCorrupt, match="last changed at 0"):
        world.views.apply([second])


def test_loading_equals_applying() -> None:
    world = World()
    for number in range(30):
        world.put(pod(str(number % 7), "ab"[number % 2]), text=str(number))
    world.delete(pod("3", "a"))
    world.put(Key("nodes", "", "n1"))
    loaded = Views(describe_simply)
    world.load(loaded)
    assert loaded.applied == world.views.applied
    for resource in ("pods", "nodes", "never-seen"):
        mine, theirs = world.views[resource].entries(), loaded[resource].entries()
        assert [(each.key, each.json, each.version) for each in mine] == [
            (each.key, each.json, each.version) for each in theirs
        ]
        assert loaded[resource].held_since == loaded.applied
        assert loaded[resource].snapshot(loaded.applied) is not None


def test_the_field_index_equals_a_search() -> None:
    choice, world = random.Random(7), World()
    view = world.views["pods"]

    def compare() -> None:
        for node in "abcd":
            expected = [entry for entry in view.entries() if entry.fields.get("spec.nodeName") == node]
            assert list(view.with_field("spec.nodeName", node)) == expected

    for turn in range(400):
        key = pod(f"p{choice.randrange(40)}", choice.choice("xyz"))
        if choice.random() < 0.3 and world.store.current(key) is not None:
            world.delete(key)
        else:
            world.put(key, node=choice.choice(("", "a", "b", "c")))
        if turn > 100:  # the first query builds the index, later changes update it
            compare()
    world.load(world.views)
    compare()
