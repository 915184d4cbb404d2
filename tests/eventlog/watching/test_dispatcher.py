"""Delivery to sleeping cursors: a model under random scheduling, refusals, cancelling, and a pump stopped half-way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.memory.memory_log import MemoryLog, MemoryStore
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.testing import commit, delete, open_stack, put
from kubechronicle.eventlog.views import window
from kubechronicle.eventlog.watching import dispatcher
from kubechronicle.eventlog.watching.cursors import WatchCursor, read_events
from kubechronicle.eventlog.watching.dispatcher import Lot, Pump, Shared

SCOPES: tuple[dict[str, Any], ...] = (
    {},
    {"namespace": "a"},
    {"namespace": "b"},
    {"namespace": "a", "name": "x"},
    {"name": "y"},
    {"field": ("spec.nodeName", "n1")},
    {"namespace": "b", "field": ("spec.nodeName", "n2")},
)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks get their turn after each recipient."""
    monkeypatch.setattr(dispatcher, "SLICE", 0)


class Reader:
    """A cursor's task, and what it was told by either way."""

    def __init__(self, cursor: WatchCursor, chance: random.Random | None = None) -> None:
        self.cursor = cursor
        self.told: list[Event] = []
        self.delivered = 0
        self.woken = 0
        self.scope = trio.CancelScope()
        self._chance = chance
        cursor.deliver_to(self.take)

    def take(self, events: list[Event]) -> bool:
        if self._chance is not None:
            what = self._chance.random()
            if what < 0.1:
                return False
            if what < 0.15:
                raise RuntimeError("cannot be encoded")
            if what < 0.2:
                self.scope.cancel()  # its client turns out to be gone, or its time is over
        self.told += events
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
                    self.told += events
            self.scope = trio.CancelScope()
            await trio.lowlevel.checkpoint()

    def revisions(self) -> list[int]:
        return [event.revision for event in self.told]


def happen(store: MemoryStore, chance: random.Random) -> None:
    """A random transaction of another replica."""
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
async def test_all_in_order_and_nothing_twice_whatever_happens(
    seed: int, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    if seed % 3 == 0:
        monkeypatch.setattr(window, "RECENT_EVENTS", 16)  # those who were not served in time read the log
    log = MemoryLog()
    async with open_stack(log) as stack:
        readers = [Reader(stack.views.watch("pods", after=0, **scope), chance) for scope in SCOPES * 3]
        for reader in readers:
            stack.nursery.start_soon(reader.run)
        for _ in range(60):
            happen(log.store, chance)
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
                while len(reader.told) < len(expected):
                    await trio.lowlevel.checkpoint()
                assert reader.revisions() == expected
        assert sum(reader.delivered for reader in readers)


async def test_a_cursor_that_can_be_delivered_to_sleeps_on() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        reader = Reader(stack.views.watch("pods", after=0, field=("spec.nodeName", "n1")))
        elsewhere = Reader(stack.views.watch("pods", after=0, field=("spec.nodeName", "n2")))
        stack.nursery.start_soon(reader.run)
        stack.nursery.start_soon(elsewhere.run)
        await wait_all_tasks_blocked()
        assert stack.views["pods"].statistics().sleeping == 2
        for number in range(5):
            commit(log.store, *(put(Key("pods", "a", f"p{number}{each}"), node="n1", expected=0) for each in "ab"))
            await stack.tail.reach(log.store.revision)
            await wait_all_tasks_blocked()
        assert reader.revisions() == list(range(1, 11))
        assert (reader.delivered, reader.woken) == (5, 0)  # one batch is one delivery
        assert (elsewhere.delivered, elsewhere.told) == (0, [])
        assert (reader.cursor.revision, elsewhere.cursor.revision) == (10, 10)
        for each in (reader, elsewhere):
            each.cursor.end()
        while not (reader.woken and elsewhere.woken):
            await trio.lowlevel.checkpoint()


async def test_what_is_on_its_way_does_not_count_as_told(eager: None) -> None:
    """A deadline between an event and its delivery: the cursor goes on with that event."""
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


class Recipient:
    def __init__(self, rounds: Iterator[bool]) -> None:
        self.served: list[int] = []
        self._rounds = rounds

    def deliver(self, revision: int, shared: Shared) -> bool:
        self.served.append(revision)
        return next(self._rounds, True)

    def wake(self, revision: int) -> None: ...


@pytest.mark.parametrize("steps", range(1, 9))
async def test_a_pump_stopped_in_a_round_begins_it_again(eager: None, steps: int) -> None:
    pump, lot = Pump(), Lot()
    recipients = [Recipient(iter(())) for _ in range(4)]
    for recipient in recipients:
        lot.asleep[recipient] = trio.lowlevel.current_task()
    pump.mark(lot, 6)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump.run)
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        pump.mark(lot, 8)
        assert lot.quiet_until in (6, 8)
        nursery.cancel_scope.cancel()
    assert lot.quiet_until is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump.run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert lot.quiet_until is None
    for recipient in recipients:
        assert recipient.served == sorted(recipient.served)
        assert set(recipient.served) >= {6}


async def test_other_tasks_run_during_a_round(eager: None) -> None:
    """However many are to be served, a request waits for a slice, not for the round."""
    pump, lot = Pump(), Lot()
    recipients = [Recipient(iter(())) for _ in range(1000)]
    for recipient in recipients:
        lot.asleep[recipient] = trio.lowlevel.current_task()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pump.run)
        await wait_all_tasks_blocked()
        pump.mark(lot, 1)
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        assert sum(len(recipient.served) for recipient in recipients) <= 10
        nursery.cancel_scope.cancel()
