"""Consistent reads: one head query for many readers, never an older one, cancelled readers, outages."""

from __future__ import annotations

import contextlib

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from kubechronicle.eventlog.errors import Compacted, LogUnavailable
from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.testing import Stack, commit, open_stack, put


def write(store: MemoryStore, name: str) -> int:
    return commit(store, put(Key("pods", "a", name), expected=0))[0].revision


class Readers:
    """Concurrent reads and their results, by name: the applied revision or the name of the error."""

    def __init__(self, stack: Stack, nursery: trio.Nursery | None = None) -> None:
        self.stack = stack
        self.nursery = nursery or stack.nursery
        self.results: dict[str, int | str] = {}

    async def read(self, name: str) -> None:
        try:
            self.results[name] = await self.stack.reads.wait()
        except LogUnavailable as error:
            self.results[name] = type(error).__name__

    def start(self, *names: str) -> None:
        for name in names:
            self.nursery.start_soon(self.read, name)


async def test_a_read_sees_what_another_replica_committed_before() -> None:
    store = MemoryStore()
    log = MemoryLog(store)
    async with open_stack(log) as stack:
        store._listeners.clear()  # no notification: the read itself has to query the head
        revision = write(store, "x")
        assert await stack.reads.wait() == revision
        assert stack.views["pods"].get("a", "x") is not None


async def test_one_query_serves_all_readers_that_arrived_before_it_was_sent() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        readers = Readers(stack)
        with log.hold("head"):
            readers.start("first")
            await wait_all_tasks_blocked()
            readers.start(*map(str, range(1000)))
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert len(readers.results) == 1001
        assert log.calls["head"] == 2


async def test_a_query_under_way_does_not_serve_later_readers() -> None:
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
        assert readers.results["late"] == 1


async def test_an_outage_fails_all_readers_of_the_query() -> None:
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
        assert readers.results == dict.fromkeys(("first", "a", "b", "c"), "LogUnavailable")
        assert log.calls["head"] == 2
        assert await stack.reads.wait() == 0


async def test_another_reader_queries_when_the_first_is_cancelled() -> None:
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
        assert readers.results == {"a": 0, "b": 0}
        assert log.calls["head"] == 2


async def test_the_last_reader_queries_when_all_others_are_cancelled_one_by_one() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        scopes = {name: trio.CancelScope() for name in "abcde"}
        readers = Readers(stack)

        async def read(name: str) -> None:
            with scopes[name]:
                await readers.read(name)

        with log.hold("head"):
            for name in "abcde":  # a queries; the others gather, and are all in one round when b, c or d queries
                stack.nursery.start_soon(read, name)
                await wait_all_tasks_blocked()
            for name in "abcd":
                scopes[name].cancel()
                await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert readers.results == {"e": 0}


async def test_a_new_reader_that_is_faster_than_the_woken_one_queries_for_both() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        readers, given_up = Readers(stack), trio.CancelScope()

        async def impatient() -> None:
            with given_up:
                await readers.read("b")
            await readers.read("b again")  # without letting c run, which the cancelled b has woken

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
        assert readers.results == {"a": 0, "b again": 0, "c": 0}


STEPS = ["arrive", "cancel", "answer", "write", "fail"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5), st.booleans()), max_size=30))
def test_every_reader_is_served_by_a_query_sent_after_its_arrival(steps: list[tuple[str, int, bool]]) -> None:
    """Readers arrive and are cancelled, queries fail and end in any order: no reader hangs or sees an old state."""

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
                        if early:  # a new reader may be faster than the woken one
                            stack.nursery.start_soon(read)
                    elif step == "answer":  # the next query is held before it reads the head, or after
                        held.close()
                        held.enter_context(log.hold("head" if early else "head.read"))
                    elif step == "write":
                        write(log.store, f"x{log.store.revision}")
                    elif step == "fail":
                        log.fail_next("head", Fault.UNAVAILABLE)
                    await settle()
            await trio.sleep(60)  # the tail may have met a failure, and pauses before it retries
            assert unserved == 0

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_consistent_read_applies_the_compacted_revisions() -> None:
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
