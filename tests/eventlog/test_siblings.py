"""Siblings: a batch waits for the transactions of writes that wait for webhooks, unless a lone client sends it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kubechronicle.eventlog import appender
from kubechronicle.eventlog.appender import Appender, Siblings
from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.records import Key, Transaction
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.testing import describe_simply, put, transaction
from kubechronicle.eventlog.views.views import Views


def create(name: str) -> Transaction:
    return transaction(put(Key("pods", "a", name), expected=0))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "GATHERING", 60)


async def beside(siblings: int, log: MemoryLog, body: Callable[[Appender], Awaitable[None]]) -> None:
    """Run a body with an appender, beside writes that wait for webhooks."""
    tail = Tail(log, Views(describe_simply))
    ours = Appender(log, tail, Siblings(siblings))
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: tail.run(task_status=task_status))
        await nursery.start(lambda *, task_status: ours.run(task_status=task_status))
        await body(ours)
        nursery.cancel_scope.cancel()


async def busy(outcomes: list[object], count: int) -> None:
    """Keep the event loop busy until there are outcomes."""
    with trio.fail_after(20):
        while len(outcomes) < count:
            await trio.lowlevel.checkpoint()
    assert all(isinstance(outcome, tuple) for outcome in outcomes)


async def come_one_by_one(ours: Appender) -> None:
    """Submit two transactions together and four later ones, each after some passes of the loop."""
    outcomes: list[object] = []
    for number in range(6):
        if number > 1:
            for _ in range(3):
                await trio.lowlevel.checkpoint()
        ours.submit(create(f"x-{number}"), outcomes.append, deadline=math.inf)
    while len(outcomes) < 6:  # the loop is quiet now
        await wait_all_tasks_blocked(0.001)
    assert all(isinstance(outcome, tuple) for outcome in outcomes)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("siblings", "batches"), [(1, {1}), (0, range(2, 7))])
async def test_several_transactions_wait_for_siblings_while_the_loop_is_busy(
    siblings: int, batches: Collection[int]
) -> None:
    log = MemoryLog()
    await beside(siblings, log, come_one_by_one)
    assert log.calls["append"] in batches


@pytest.mark.usefixtures("patient")
async def test_transactions_of_a_lone_client_are_sent_though_the_loop_is_busy() -> None:
    async def body(ours: Appender) -> None:
        outcomes: list[object] = []
        for number in range(3):
            ours.submit(create(f"x-{number}"), outcomes.append, deadline=math.inf)
            await busy(outcomes, number + 1)

    await beside(1, MemoryLog(), body)


async def test_several_transactions_wait_for_a_bounded_time() -> None:
    async def body(ours: Appender) -> None:
        outcomes: list[object] = []
        for name in "xyz":
            ours.submit(create(name), outcomes.append, deadline=math.inf)
        await busy(outcomes, 3)

    await beside(1, MemoryLog(), body)


@pytest.mark.usefixtures("patient")
async def test_stopping_rejects_the_transactions_that_wait_for_siblings() -> None:
    log = MemoryLog()
    tail = Tail(log, Views(describe_simply))
    ours = Appender(log, tail, Siblings(1))
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
            while not outcomes:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert [type(outcome) for outcome in outcomes] == [LogUnavailable, LogUnavailable]
    assert log.calls["append"] == 0
