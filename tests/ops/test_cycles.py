"""Garbage in cycles: old garbage is found in short steps, what is in use stays, and no collection is a full one."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import trio
from prometheus_client import CollectorRegistry

from kubechronicle.ops import cycles, garbage_search
from kubechronicle.ops.cycles import Cycles
from kubechronicle.ops.garbage_search import GarbageSearch

pytestmark = pytest.mark.skipif(not cycles.in_steps(), reason="this interpreter collects old objects by itself")


class Node:
    """An object that may be in a cycle."""

    def __init__(self) -> None:
        self.others: list[Node] = []


class Name(NamedTuple):
    first: str
    second: Any


@pytest.fixture(autouse=True)
def _own_collections() -> Iterator[None]:
    """Hide the objects of other tests, and restore the collector."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks


def rings(count: int, size: int = 3) -> list[Node]:
    """Return nodes in cycles of ``size``, each of which refers to the one before it."""
    nodes = [Node() for _ in range(count * size)]
    for number, node in enumerate(nodes):
        ring = number // size * size
        node.others.append(nodes[ring + (number + 1) % size])
        if number == ring and ring:
            node.others.append(nodes[ring - 1])
    return nodes


def search() -> GarbageSearch:
    made = GarbageSearch(gc.get_objects(generation=2))
    for _ in made.steps():
        pass
    return made


def test_old_cycles_are_collected_and_what_is_in_use_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_search, "PORTION", 50)  # portions depend on each other
    monkeypatch.setattr(garbage_search, "STEP", 100)
    kept, dead = rings(500), rings(500)
    gone = [weakref.ref(node) for node in dead]
    gc.collect()
    del dead
    gc.collect(1)
    assert all(each() is not None for each in gone)  # no collection of young objects finds them
    assert search().collected >= 1500
    assert not any(each() is not None for each in gone)
    assert [len(node.others) for node in kept[:4]] == [1, 1, 1, 2]


def test_a_cycle_that_is_in_use_by_something_else_stays() -> None:
    (held, *_) = rings(1)
    by_closure = rings(1)

    def use() -> list[Node]:
        return by_closure

    gc.collect()
    search()
    assert held.others[0].others[0].others[0] is held
    assert len(use()) == 3


def test_what_looks_like_garbage_is_kept_if_it_is_in_use() -> None:
    """The state may change during a search: the collector decides."""
    nodes = rings(1)
    portion = list(nodes)
    assert garbage_search._collect_portion(portion) == 0
    assert portion == []
    assert nodes[0].others == [nodes[1]]
    assert gc.is_tracked(nodes[0])


def test_finalizers_run_once() -> None:
    seen = []
    dead = rings(1)
    weakref.finalize(dead[0], seen.append, "ended")
    gc.collect()
    del dead
    search()
    search()
    assert seen == ["ended"]


def test_items_of_huge_containers_stay_and_those_of_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_search, "HUGE", 10)
    node = Node()
    huge = {number: Node() for number in range(11)}
    node.others = [*huge.values()]
    gc.collect()
    search()
    assert len(huge) == 11


def test_the_references_of_a_step_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few objects with many references are as much work as many objects."""
    monkeypatch.setattr(garbage_search, "STEP", 100)
    nodes = [Node() for _ in range(10)]
    for node in nodes:
        node.others = [node, *([object()] * 5_000)]
    gc.collect()
    objects = [*nodes, *(vars(node) for node in nodes), *(node.others for node in nodes)]
    nodes.clear()
    del node
    made = GarbageSearch(objects)
    sizes = []
    for _ in made.steps():
        sizes.append(made._done)
    assert made.collected >= 10
    assert len(sizes) > 2 * 10 * 5_000 / 100
    assert max(sizes) <= 101


def test_fixed_containers_of_texts_are_hidden_and_others_are_not() -> None:
    names = [Name(f"a{number}", "b") for number in range(10)]
    sets = [frozenset({f"a{number}"}) for number in range(10)]
    changing = [Name("a", {}), Name("a", Name("b", [])), frozenset({Node()})]
    gc.collect()
    search()
    assert not any(map(gc.is_tracked, [*names, *sets]))
    assert all(map(gc.is_tracked, changing))


@pytest.mark.parametrize("edges", [{0: [1], 1: [0], 2: [0]}, {0: [1], 1: [2], 2: [3], 3: [1, 2]}, {0: [0], 1: [1]}])
def test_cycles_come_after_those_that_they_lead_to(edges: dict[int, list[int]]) -> None:
    def referents(number: int) -> Iterator[int | None]:
        yield from edges[number]
        yield None

    cycles = list(garbage_search._cycles(edges, referents, lambda: True))
    assert cycles.count(None) == len(edges)  # a step ends behind each object here
    found = [set(each) for each in cycles if each is not None]
    assert found == ([{0, 1}] if 2 in edges and 3 not in edges else [{1, 2, 3}] if 3 in edges else [{0}, {1}])


async def test_a_search_that_is_asked_for_frees_old_garbage() -> None:
    owner = Cycles()
    dead = rings(100)
    gone = weakref.ref(dead[0])
    gc.collect()
    del dead
    async with trio.open_nursery() as nursery:
        nursery.start_soon(owner.run)
        await owner.collect()
        assert gone() is None
        await owner.collect()
        nursery.cancel_scope.cancel()


async def test_a_search_begins_when_old_objects_have_grown(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr(cycles, "LEAST_GROWTH", 1000)
    monkeypatch.setattr(cycles, "NEW", 500)
    owner, registry = Cycles(), CollectorRegistry()
    owner.register(registry)
    owner.begin()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(owner.run)
        await trio.sleep(10)
        assert registry.get_sample_value("kubechronicle_garbage_searches_total") == 0
        kept = rings(3000)
        dead = rings(100)
        gone = weakref.ref(dead[0])
        gc.collect(1)
        del dead
        await trio.sleep(100)
        assert registry.get_sample_value("kubechronicle_garbage_searches_total") == 1
        assert gone() is None
        assert len(kept) == 9000
        nursery.cancel_scope.cancel()
    pauses = "kubechronicle_garbage_collection_pause_seconds_count"
    assert registry.get_sample_value(pauses, {"generation": "1"})
    assert not registry.get_sample_value(pauses, {"generation": "2"})


def test_an_incremental_collector_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycles, "_INITIAL", (2000, 10, 0))
    assert not cycles.in_steps()


def test_a_collection_takes_no_lock_of_a_metric() -> None:
    """It may begin in a thread that holds one, such as that which writes the metrics."""
    owner, registry = Cycles(), CollectorRegistry()
    owner.register(registry)
    owner.begin()
    with registry._lock, owner.searches._value._lock, owner.found._value._lock, owner.old._value._lock:
        gc.collect(1)
    assert registry.get_sample_value("kubechronicle_garbage_collection_pause_seconds_count", {"generation": "1"}) == 1
