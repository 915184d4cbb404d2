"""Delivery to waiting cursors: a model with random scheduling, rejection and cancellation; a stopped dispatcher."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.testing import commit, delete, open_stack, put
from kubechronicle.eventlog.views import dispatcher, view
from kubechronicle.eventlog.views.cursors import WatchCursor, read_events
from kubechronicle.eventlog.views.dispatcher import Dispatcher, SharedBatches, WatcherGroup

SCOPES: tuple[dict[str, Any], ...] = (
    {},
    {"namespace": "a"},
    {"namespace": "b"},
    {"namespace": "a", "name": "x"},
    {"name": "y"},
    {"field": ("spec.nodeName", "n1")},
    {"namespace": "b", "field": ("spec.nodeName", "n2")},
)


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no group rest, however busy the machine is."""
    monkeypatch.setattr(dispatcher, "LONG_ROUND", math.inf)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other tasks run after each watcher."""
    monkeypatch.setattr(dispatcher, "TIME_SLICE", 0)


class Reader:
    """The task of a cursor, and the events it received in either way."""

    def __init__(self, cursor: WatchCursor, chance: random.Random | None = None) -> None:
        self.cursor = cursor
        self.received: list[Event] = []
        self.delivered = 0
        self.woken = 0
        self.scope = trio.CancelScope()
        self._chance = chance
        cursor.deliver_to(self.take)

    def take(self, events: list[Event]) -> bool:
        if self._chance is not None:
            outcome = self._chance.random()
            if outcome < 0.1:
                return False
            if outcome < 0.15:
                raise RuntimeError("cannot be encoded")
            if outcome < 0.2:
                self.scope.cancel()  # its client is gone, or its deadline has passed
        self.received += events
        self.delivered += 1
        return True

    async def run(self) -> None:
        while True:
            with self.scope:
                while True:
                    deadline = None
                    if self._chance is not None and self._chance.random() < 0.5:
                        deadline = trio.current_time() + self._chance.random() * 0.001
                    events = await self.cursor.next_batch(deadline)
                    self.woken += 1
                    self.received += events
            self.scope = trio.CancelScope()
            await trio.lowlevel.checkpoint()

    def revisions(self) -> list[int]:
        return [event.revision for event in self.received]


def commit_randomly(store: MemoryStore, chance: random.Random) -> None:
    """Commit a random transaction as another replica."""
    changes = []
    for name in chance.sample("xyz", chance.randint(1, 3)):
        key = Key("pods", chance.choice("ab"), name)
        current = store.current(key)
        node = chance.choice(("", "n1", "n2"))
        if current is not None and chance.random() < 0.3:
            changes.append(delete(key, expected=current.revision, node=node))
        else:
            changes.append(put(key, expected=current.revision if current else 0, node=node))
    commit(store, *changes)


@pytest.mark.parametrize("seed", range(12))
async def test_every_event_is_received_once_in_order(seed: int, eager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    if seed % 3 == 0:
        monkeypatch.setattr(view, "RECENT_EVENTS", 16)  # watchers served too late read the log
    log = MemoryLog()
    async with open_stack(log) as stack:
        readers = [Reader(stack.views.watch("pods", after=0, **scope), chance) for scope in SCOPES * 3]
        for reader in readers:
            stack.nursery.start_soon(reader.run)
        for _ in range(60):
            commit_randomly(log.store, chance)
            stack.nursery.start_soon(stack.tail.reach, log.store.revision)
            for _ in range(chance.choice((0, 0, 1, 3, 30))):
                await trio.lowlevel.checkpoint()
        await stack.tail.reach(log.store.revision)
        everything, until = await read_events(
            stack.views, "pods", after=0, until=log.store.revision, namespace="", name=""
        )
        assert until == len(everything) == log.store.revision
        with trio.fail_after(60):
            for reader in readers:
                expected = [event.revision for event in everything if reader.cursor.concerns(event)]
                while len(reader.received) < len(expected):
                    await trio.lowlevel.checkpoint()
                assert reader.revisions() == expected
        assert sum(reader.delivered for reader in readers)


async def test_a_cursor_that_takes_deliveries_keeps_waiting() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        reader = Reader(stack.views.watch("pods", after=0, field=("spec.nodeName", "n1")))
        elsewhere = Reader(stack.views.watch("pods", after=0, field=("spec.nodeName", "n2")))
        stack.nursery.start_soon(reader.run)
        stack.nursery.start_soon(elsewhere.run)
        await wait_all_tasks_blocked()
        assert stack.views["pods"].statistics().waiting_watchers == 2
        for number in range(5):
            commit(log.store, *(put(Key("pods", "a", f"p{number}{each}"), node="n1", expected=0) for each in "ab"))
            await stack.tail.reach(log.store.revision)
            await wait_all_tasks_blocked()
        assert reader.revisions() == list(range(1, 11))
        assert (reader.delivered, reader.woken) == (5, 0)  # one batch is one delivery
        assert (elsewhere.delivered, elsewhere.received) == (0, [])
        assert (reader.cursor.revision, elsewhere.cursor.revision) == (10, 10)
        for each in (reader, elsewhere):
            each.cursor.end()
        while not (reader.woken and elsewhere.woken):
            await trio.lowlevel.checkpoint()


async def test_undelivered_events_do_not_count_as_received(eager: None) -> None:
    """A cursor whose deadline passes between an event and its delivery continues with that event."""
    log = MemoryLog()
    async with open_stack(log) as stack:
        readers = [Reader(stack.views.watch("pods", after=0)) for _ in range(3)]
        for reader in readers:
            stack.nursery.start_soon(reader.run)
        await wait_all_tasks_blocked()
        commit(log.store, put(Key("pods", "a", "x"), expected=0))
        stack.views.apply(await log.read(after=0, limit=10))  # without a checkpoint until here
        assert [reader.cursor.revision for reader in readers] == [0, 0, 0]
        readers[0].scope.cancel()
        readers[1].cursor.end()
        assert readers[0].cursor.revision == readers[1].cursor.revision == 0
        await trio.lowlevel.checkpoint()
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        assert [reader.revisions() for reader in readers] == [[1], [1], [1]]


class ScriptedWatcher:
    def __init__(self, rounds: Iterator[bool]) -> None:
        self.served: list[int] = []
        self._rounds = rounds

    def deliver(self, revision: int, shared: SharedBatches) -> bool:
        self.served.append(revision)
        return next(self._rounds, True)

    def wake(self, revision: int) -> None: ...


@pytest.mark.parametrize("steps", range(1, 9))
async def test_a_dispatcher_stopped_in_a_round_goes_on(eager: None, steps: int) -> None:
    queue, group = Dispatcher(), WatcherGroup()
    watchers = [ScriptedWatcher(iter(())) for _ in range(4)]
    for watcher in watchers:
        group.waiting[watcher] = trio.lowlevel.current_task()
    queue.enqueue(group, 6)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        queue.enqueue(group, 8)
        assert group.delivered_until in (6, 8)
        nursery.cancel_scope.cancel()
    assert group.delivered_until is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert group.delivered_until is None
    for watcher in watchers:
        assert watcher.served == sorted(watcher.served)
        assert set(watcher.served) >= {6}


async def test_events_are_delivered_without_the_dispatchers_task(eager: None) -> None:
    """The tail delivers before a write is answered, so that a client's watches are not behind its own write."""
    queue, group = Dispatcher(), WatcherGroup()
    watchers = [ScriptedWatcher(iter(())) for _ in range(3)]
    for watcher in watchers:
        group.waiting[watcher] = trio.lowlevel.current_task()
    queue.enqueue(group, 6)
    for _ in watchers:  # each call serves one watcher: the clock of this test ends a slice at once
        assert group.delivered_until == 6
        queue.deliver()
    queue.deliver()
    assert [watcher.served for watcher in watchers] == [[6], [6], [6]]
    assert group.delivered_until is None
    queue.deliver()
    assert [watcher.served for watcher in watchers] == [[6], [6], [6]]


async def test_other_tasks_run_during_a_round(eager: None) -> None:
    """A request waits for one time slice, not for the round, however many watchers the group has."""
    queue, group = Dispatcher(), WatcherGroup()
    watchers = [ScriptedWatcher(iter(())) for _ in range(1000)]
    for watcher in watchers:
        group.waiting[watcher] = trio.lowlevel.current_task()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        await wait_all_tasks_blocked()
        queue.enqueue(group, 1)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        assert sum(len(watcher.served) for watcher in watchers) <= 10
        nursery.cancel_scope.cancel()


async def test_a_group_rests_after_a_long_round(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The events of its rest are delivered together; another group does not wait for it."""
    ticks = itertools.count(step=0.01)  # each watcher takes as long
    monkeypatch.setattr(dispatcher, "LONG_ROUND", 0.005)
    monkeypatch.setattr(dispatcher.time, "perf_counter", lambda: next(ticks))
    queue, large, small = Dispatcher(), WatcherGroup(), WatcherGroup()
    watchers = {group: [ScriptedWatcher(iter(())) for _ in range(count)] for group, count in ((large, 5), (small, 1))}
    for group, members in watchers.items():
        for watcher in members:
            group.waiting[watcher] = trio.lowlevel.current_task()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.run)
        started = trio.current_time()
        queue.enqueue(large, 1)
        await wait_all_tasks_blocked()
        assert [watcher.served for watcher in watchers[large]] == [[1]] * 5
        for revision in (2, 3):
            queue.enqueue(large, revision)
        small.rests_until = 0.0
        queue.enqueue(small, 3)
        await wait_all_tasks_blocked()
        assert watchers[small][0].served == [3]
        assert [watcher.served for watcher in watchers[large]] == [[1]] * 5
        assert large.delivered_until == 2
        await trio.sleep_until(large.rests_until + 0.001)
        assert [watcher.served for watcher in watchers[large]] == [[1, 2]] * 5
        assert 0.05 <= trio.current_time() - started <= dispatcher.LONGEST_REST + 0.01
        nursery.cancel_scope.cancel()
