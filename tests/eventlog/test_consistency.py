"""Consistent reads: one head query for many, never an older one, cancelled askers, outages."""

from __future__ import annotations

import contextlib

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from kubechronicle.eventlog.errors import Compacted, LogUnavailable
from kubechronicle.eventlog.memory.faults import Fault
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.testing import Stack, commit, open_stack, put


def write(store: MemoryStore, name: str) -> int:
    return commit(store, put(Key("pods", "a", name), expected=0))[0].revision


class Readers:
    def __init__(self, stack: Stack, nursery: trio.Nursery | None = None) -> None:
        self.stack = stack
        self.nursery = nursery or stack.nursery
        self.told: dict[str, int | str] = {}

    async def read(self, name: str) -> None:
        try:
            self.told[name] = await self.stack.reads.wait()
        except LogUnavailable as error:
            self.told[name] = type(error).__name__

    def start(self, *names: str) -> None:
        for name in names:
            self.nursery.start_soon(self.read, name)


async def test_a_read_sees_what_another_replica_committed_before() -> None:
    store = MemoryStore()
    log = MemoryLog(store)
    async with open_stack(log) as stack:
        store._listeners.clear()  # no notification: the read itself must find out
        revision = write(store, "x")
        assert await stack.reads.wait() == revision
        assert stack.views["pods"].get("a", "x") is not None


async def test_one_query_serves_all_who_arrived_before_it_was_sent() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        readers = Readers(stack)
        with log.hold("head"):
            readers.start("first")
            await wait_all_tasks_blocked()
            readers.start(*map(str, range(1000)))
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert len(readers.told) == 1001
        assert log.calls["head"] == 2


async def test_a_query_under_way_does_not_serve_who_arrives_later() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        readers = Readers(stack)
        with log.hold("head.read") as gate:
            readers.start("early")
            await gate.wait_arrived()  # the head has been read: 0
            write(log.store, "x")
            readers.start("late")
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert log.calls["head"] >= 2
        assert readers.told["late"] == 1


async def test_an_outage_is_told_to_those_it_concerns_by_one_query() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        readers = Readers(stack)
        with log.hold("head"):
            readers.start("first")
            await wait_all_tasks_blocked()
            readers.start("a", "b", "c")
            await wait_all_tasks_blocked()
            log.fail_next("head", Fault.UNAVAILABLE, Fault.UNAVAILABLE)
        await wait_all_tasks_blocked()
        assert readers.told == dict.fromkeys(("first", "a", "b", "c"), "LogUnavailable")
        assert log.calls["head"] == 2
        assert await stack.reads.wait() == 0


async def test_when_the_asker_is_cancelled_another_asks() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        readers = Readers(stack)
        with log.hold("head") as gate:
            async with trio.open_nursery() as doomed:
                Readers(stack, doomed).start("asker")
                await gate.wait_arrived()
                readers.start("a", "b")
                await wait_all_tasks_blocked()
                doomed.cancel_scope.cancel()
            await wait_all_tasks_blocked()
            assert log.calls["head"] == 2
        await wait_all_tasks_blocked()
        assert readers.told == {"a": 0, "b": 0}
        assert log.calls["head"] == 2


async def test_when_askers_are_cancelled_one_after_the_other_somebody_still_asks() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        scopes = {name: trio.CancelScope() for name in "abcde"}
        readers = Readers(stack)

        async def read(name: str) -> None:
            with scopes[name]:
                await readers.read(name)

        with log.hold("head"):
            for name in "abcde":  # a asks; the others gather, and are all of one query's round when b, c or d asks
                stack.nursery.start_soon(read, name)
                await wait_all_tasks_blocked()
            for name in "abcd":
                scopes[name].cancel()
                await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert readers.told == {"e": 0}


async def test_a_reader_faster_than_the_one_woken_to_ask_asks_for_both() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        readers, given_up = Readers(stack), trio.CancelScope()

        async def impatient() -> None:
            with given_up:
                await readers.read("b")
            await readers.read("b again")  # without letting c run, whom the cancelled b has woken

        with log.hold("head"):
            readers.start("a")
            await wait_all_tasks_blocked()
            stack.nursery.start_soon(impatient)
            await wait_all_tasks_blocked()
            readers.start("c")
            await wait_all_tasks_blocked()
        with log.hold("head"):
            await wait_all_tasks_blocked()
            given_up.cancel()
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert readers.told == {"a": 0, "b again": 0, "c": 0}


STEPS = ["arrive", "cancel", "answer", "write", "fail"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5), st.booleans()), max_size=30))
def test_every_reader_is_served_by_a_query_sent_after_it_came(steps: list[tuple[str, int, bool]]) -> None:
    """Readers arrive, are cancelled, queries fail and end in any order: nobody hangs, nobody sees an old state."""

    async def main() -> None:
        log = MemoryLog()
        async with open_stack(log) as stack:
            log.store._listeners.clear()
            scopes: list[trio.CancelScope] = []
            unserved = 0

            async def read() -> None:
                nonlocal unserved
                committed = log.store.revision
                unserved += 1
                with trio.CancelScope() as scope:
                    scopes.append(scope)
                    with contextlib.suppress(LogUnavailable):
                        assert await stack.reads.wait() >= committed
                unserved -= 1

            async def settle() -> None:
                for _ in range(3):
                    await wait_all_tasks_blocked()

            with contextlib.ExitStack() as held:
                held.enter_context(log.hold("head"))
                for step, number, early in steps:
                    if step == "arrive":
                        for _ in range(number):
                            stack.nursery.start_soon(read)
                    elif step == "cancel" and scopes:
                        scopes.pop(number % len(scopes)).cancel()
                        if early:  # a new reader may be faster than the one woken to ask next
                            stack.nursery.start_soon(read)
                    elif step == "answer":  # the next query is held before it reads the head, or after
                        held.close()
                        held.enter_context(log.hold("head" if early else "head.read"))
                    elif step == "write":
                        write(log.store, f"x{log.store.revision}")
                    elif step == "fail":
                        log.fail_next("head", Fault.UNAVAILABLE)
                    await settle()
            await trio.sleep(60)  # a failure may have met the tail, which then pauses before it tries again
            assert unserved == 0

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_consistent_read_learns_what_has_been_compacted() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        log.store._listeners.clear()
        for name in "xyz":
            write(log.store, name)
        await stack.reads.wait()
        assert stack.views["pods"].snapshot(1) is not None
        log.store.compact(2)
        await stack.reads.wait()
        assert stack.views["pods"].snapshot(1) is None
        with pytest.raises(Compacted):
            await stack.views.watch("pods", after=1).next_batch()
