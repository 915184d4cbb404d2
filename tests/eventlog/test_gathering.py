"""Gathering: several transactions of a busy server wait for more, a lone one does not."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio

from kubechronicle.eventlog.appender import Appender
from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.records import Key, Transaction
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.testing import describe_simply, put, transaction
from kubechronicle.eventlog.views.views import Views


def create(name: str) -> Transaction:
    return transaction(put(Key("pods", "a", name), expected=0))


async def gathering(log: MemoryLog, seconds: float, body: Callable[[Appender, trio.Nursery], Awaitable[None]]) -> None:
    """Run a body beside an appender that gathers."""
    tail = Tail(log, Views(describe_simply))
    ours = Appender(log, tail, gathering=seconds)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: tail.run(task_status=task_status))
        await nursery.start(lambda *, task_status: ours.run(task_status=task_status))
        await body(ours, nursery)
        nursery.cancel_scope.cancel()


async def test_several_transactions_wait_while_the_loop_is_busy() -> None:
    log = MemoryLog()

    async def body(ours: Appender, nursery: trio.Nursery) -> None:
        outcomes: list[object] = []
        done = trio.Event()
        names = iter("abcdef")

        def arrived(outcome: object) -> None:
            outcomes.append(outcome)
            if len(outcomes) == 6:
                done.set()

        for _ in range(2):
            ours.submit(create(next(names)), arrived, deadline=math.inf)
        for name in names:  # each after some passes of the loop
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            ours.submit(create(name), arrived, deadline=math.inf)
        await done.wait()
        assert all(isinstance(outcome, tuple) for outcome in outcomes)
        assert log.calls["append"] == 1

    await gathering(log, 60, body)


async def busy(until: list[object], count: int) -> None:
    """Keep the event loop busy until there are outcomes."""
    with trio.fail_after(20):
        while len(until) < count:
            await trio.lowlevel.checkpoint()


async def test_a_lone_transaction_is_sent_though_the_loop_is_busy() -> None:
    async def body(ours: Appender, nursery: trio.Nursery) -> None:
        outcomes: list[object] = []
        for number in range(3):
            ours.submit(create(f"x-{number}"), outcomes.append, deadline=math.inf)
            await busy(outcomes, number + 1)

    await gathering(MemoryLog(), 60, body)


async def test_transactions_do_not_wait_longer_than_the_time_of_gathering() -> None:
    async def body(ours: Appender, nursery: trio.Nursery) -> None:
        outcomes: list[object] = []
        for name in "xyz":
            ours.submit(create(name), outcomes.append, deadline=math.inf)
        await busy(outcomes, 3)

    await gathering(MemoryLog(), 0.001, body)


async def test_stopping_rejects_the_transactions_that_wait_for_others() -> None:
    log = MemoryLog()
    tail = Tail(log, Views(describe_simply))
    ours = Appender(log, tail, gathering=60)
    outcomes: list[object] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: tail.run(task_status=task_status))
        async with trio.open_nursery() as running:
            await running.start(lambda *, task_status: ours.run(task_status=task_status))
            for name in "xy":
                ours.submit(create(name), outcomes.append, deadline=math.inf)
            for _ in range(5):
                await trio.lowlevel.checkpoint()
            running.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
    assert [type(outcome) for outcome in outcomes] == [LogUnavailable, LogUnavailable]
    assert log.calls["append"] == 0
