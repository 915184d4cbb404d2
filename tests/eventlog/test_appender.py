"""The appender: grouping, the four outcomes, lost connections, deadlines, cancelling, stopping."""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from kubechronicle.eventlog import appender
from kubechronicle.eventlog.appender import Appender
from kubechronicle.eventlog.errors import (
    LogCorrupt,
    LogError,
    LogUnavailable,
    OutcomeUnknownForNow,
    QueueFull,
    RejectedError,
)
from kubechronicle.eventlog.memory.memory_log import Fault, MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Batch, BatchResult, Key, Record, Rejected, Transaction
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.testing import commit, describe_simply, open_stack, put, transaction
from kubechronicle.eventlog.views.views import Views

SOON = 30.0  # the deadline of a request, on a clock that jumps


def pod(name: str) -> Key:
    return Key("pods", "a", name)


def create(*names: str, expected: int = 0, text: str = "") -> Transaction:
    return transaction(*(put(pod(name), expected=expected, text=text) for name in names))


class Outcomes:
    """The outcomes of several callers, by name: records or the name of the error."""

    def __init__(self) -> None:
        self.results: dict[str, tuple[Record, ...] | str] = {}

    async def call(self, name: str, call: Callable[[], Awaitable[tuple[Record, ...]]]) -> None:
        try:
            self.results[name] = await call()
        except (RejectedError, LogUnavailable, OutcomeUnknownForNow) as error:
            self.results[name] = type(error).__name__

    def append(self, on: Appender, name: str, *, deadline: float = math.inf) -> Callable[[], Awaitable[Any]]:
        return lambda: self.call(name, lambda: on.append(create(name), deadline=deadline))


async def test_append_returns_when_the_change_is_durable_and_applied() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        (record,) = await stack.appender.append(create("x"), deadline=math.inf)
        assert record.revision == log.store.revision == stack.views.applied == 1
        assert stack.views["pods"].get("a", "x") is not None
        assert log.calls["read"] == 0


async def test_a_transaction_is_atomic() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        await stack.appender.append(create("x"), deadline=math.inf)
        with pytest.raises(RejectedError) as caught:
            await stack.appender.append(create("y", "x"), deadline=math.inf)
        assert (caught.value.rejected.key, caught.value.rejected.actual) == (pod("x"), 1)
        assert stack.views["pods"].get("a", "y") is None
        records = await stack.appender.append(create("y", "z"), deadline=math.inf)
        assert [record.revision for record in records] == [2, 3]


async def test_rejected_transactions_do_not_stop_others_and_the_views_show_the_reason() -> None:
    store = MemoryStore()
    ours = MemoryLog(store)
    async with open_stack(ours) as stack:
        outcomes = Outcomes()
        with ours.hold("append"):
            for name in "xyz":
                stack.nursery.start_soon(outcomes.append(stack.appender, name))
            await wait_all_tasks_blocked()
            commit(store, put(pod("y"), expected=0))
        await wait_all_tasks_blocked()
        assert outcomes.results["y"] == "RejectedError"
        assert [type(outcomes.results[name]) for name in "xz"] == [tuple, tuple]
        assert stack.views.applied == 3


async def test_transactions_that_wait_for_a_batch_form_the_next_one() -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        outcomes = Outcomes()
        with log.hold("append"):
            for number in range(50):
                stack.nursery.start_soon(outcomes.append(stack.appender, str(number)))
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        assert len(outcomes.results) == 50
        assert log.calls["append"] <= 2  # one for the transactions before the first send, one for all others


async def test_a_short_outage_is_not_noticed(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        log.fail_next("append", *[Fault.UNAVAILABLE] * (appender.ATTEMPTS - 1))
        (record,) = await stack.appender.append(create("x"), deadline=SOON)
        assert record.revision == 1
        assert trio.current_time() < 2


async def test_a_longer_outage_is_reported_and_nothing_committed(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        log.fail_next("append", *[Fault.UNAVAILABLE] * appender.ATTEMPTS)
        with pytest.raises(LogUnavailable):
            await stack.appender.append(create("x"), deadline=SOON)
        assert log.store.revision == 0
        await stack.appender.append(create("x"), deadline=SOON)


async def test_attempts_end_with_the_deadline(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        log.fail_next("append", *[Fault.UNAVAILABLE] * appender.ATTEMPTS)
        with pytest.raises(LogUnavailable):
            await stack.appender.append(create("x"), deadline=0.2)
        assert trio.current_time() == pytest.approx(0.2)
        await trio.sleep(5)
        assert log.calls["append"] < appender.ATTEMPTS
        assert log.store.revision == 0


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE_COMMIT, Fault.LOST_AFTER_COMMIT, Fault.LOST_IN_FLIGHT])
async def test_a_batch_whose_connection_broke_at_commit_commits_once(
    autojump_clock: trio.testing.MockClock, fault: Fault
) -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        log.fail_next("append", fault)
        log.fail_next("settle", Fault.UNAVAILABLE, Fault.UNAVAILABLE)
        (record,) = await stack.appender.append(create("x"), deadline=SOON)
        for straggler in log.store.stragglers:
            assert not log.store.deliver_straggler(straggler)
        assert (record.revision, log.store.revision, stack.views.applied) == (1, 1, 1)
        assert log.calls["settle"] == 3


async def test_a_straggler_that_arrives_while_settling_is_the_outcome(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        log.fail_next("append", Fault.LOST_IN_FLIGHT)
        outcomes = Outcomes()
        with log.hold("settle") as gate:
            stack.nursery.start_soon(outcomes.append(stack.appender, "x"))
            await gate.wait_arrived()
            assert log.store.deliver_straggler(log.store.stragglers[0])
        await wait_all_tasks_blocked()
        assert isinstance(outcomes.results["x"], tuple)
        assert log.calls["append"] == 1


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE_COMMIT, Fault.LOST_AFTER_COMMIT])
async def test_a_deadline_before_the_outcome_reports_neither_success_nor_failure(
    autojump_clock: trio.testing.MockClock, fault: Fault
) -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        log.fail_next("append", fault)
        with log.hold("settle") as gate:
            with pytest.raises(OutcomeUnknownForNow):
                await stack.appender.append(create("x"), deadline=3)
            outcomes = Outcomes()
            stack.nursery.start_soon(outcomes.append(stack.appender, "y"))
            await wait_all_tasks_blocked()
            assert log.calls["append"] == 1  # nothing is sent before the first is settled
            gate.release()
        await wait_all_tasks_blocked()
        committed = fault is Fault.LOST_AFTER_COMMIT
        assert (stack.views["pods"].get("a", "x") is not None) is committed
        assert stack.views["pods"].get("a", "y") is not None
        assert stack.views.applied == log.store.revision == 1 + committed


async def test_committed_but_not_applied_in_time_is_unknown(autojump_clock: trio.testing.MockClock) -> None:
    store = MemoryStore()
    ours = MemoryLog(store)
    async with open_stack(ours) as stack:
        with ours.hold("read"):
            commit(store, put(pod("theirs"), expected=0))
            with pytest.raises(OutcomeUnknownForNow):
                await stack.appender.append(create("x"), deadline=3)
        await stack.tail.reach(2)
        assert stack.views["pods"].get("a", "x") is not None


async def test_cancelling_withdraws_an_unsent_transaction_but_not_a_sent_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        with log.hold("append") as gate:
            async with trio.open_nursery() as callers:
                callers.start_soon(lambda: stack.appender.append(create("sent"), deadline=SOON))
                await gate.wait_arrived()
                callers.start_soon(lambda: stack.appender.append(create("in-line"), deadline=SOON))
                await wait_all_tasks_blocked()
                callers.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        assert [entry.key.name for entry in stack.views["pods"].entries()] == ["sent"]
        assert not stack.appender._waiting


async def test_the_queue_is_bounded_and_callers_outside_keep_their_deadlines(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "WAITING_TRANSACTIONS", 3)
    log = MemoryLog()
    async with open_stack(log) as stack:
        outcomes = Outcomes()
        with log.hold("append") as gate:
            stack.nursery.start_soon(outcomes.append(stack.appender, "first", deadline=SOON))
            await gate.wait_arrived()
            for number in range(5):
                stack.nursery.start_soon(outcomes.append(stack.appender, str(number), deadline=SOON))
            await wait_all_tasks_blocked()
            with pytest.raises(LogUnavailable):
                await stack.appender.append(create("x"), deadline=2)
            assert len(stack.appender._waiting) == 2
        await wait_all_tasks_blocked()
        assert all(isinstance(outcome, tuple) for outcome in outcomes.results.values())
        assert len(outcomes.results) == 6


async def test_stopping_finishes_the_batch_under_way_and_rejects_others(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    tail = Tail(log, Views(describe_simply))
    ours, outcomes = Appender(log, tail), Outcomes()
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: tail.run(task_status=task_status))
        async with trio.open_nursery() as running:
            await running.start(lambda *, task_status: ours.run(task_status=task_status))
            with log.hold("append.committed") as gate:
                nursery.start_soon(outcomes.append(ours, "sent"))
                await gate.wait_arrived()
                nursery.start_soon(outcomes.append(ours, "in-line"))
                await wait_all_tasks_blocked()
                running.cancel_scope.cancel()
                await wait_all_tasks_blocked()
                assert outcomes.results == {}
        await wait_all_tasks_blocked()
        assert isinstance(outcomes.results["sent"], tuple)
        assert outcomes.results["in-line"] == "LogUnavailable"
        with pytest.raises(LogUnavailable):
            await ours.append(create("late"), deadline=math.inf)
        nursery.cancel_scope.cancel()


async def test_stopping_waits_for_a_bounded_time(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    tail = Tail(log, Views(describe_simply))
    ours, outcomes = Appender(log, tail), Outcomes()
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: tail.run(task_status=task_status))
        with log.hold("settle"):
            log.fail_next("append", Fault.LOST_IN_FLIGHT)
            async with trio.open_nursery() as running:
                await running.start(lambda *, task_status: ours.run(task_status=task_status))
                nursery.start_soon(outcomes.append(ours, "sent"))
                await wait_all_tasks_blocked()
                running.cancel_scope.cancel()
            assert trio.current_time() == appender.SHUTDOWN_GRACE
        await wait_all_tasks_blocked()
        assert outcomes.results["sent"] == "OutcomeUnknownForNow"
        nursery.cancel_scope.cancel()


class Broken(MemoryLog):
    """Returns results that it did not commit."""

    async def append(self, batch: Batch) -> BatchResult:
        result = await super().append(batch)
        (record,) = commit(MemoryStore(), put(pod("else"), expected=0))
        return BatchResult(outcomes=((record, record),), first=result.first, head=result.head)


async def test_a_crash_ends_every_wait_with_an_unknown_outcome() -> None:
    log = Broken()
    tail = Tail(log, Views(describe_simply))
    ours, outcomes = Appender(log, tail), Outcomes()
    with pytest.RaisesGroup(LogCorrupt, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda *, task_status: tail.run(task_status=task_status))
            async with trio.open_nursery() as running:
                await running.start(lambda *, task_status: ours.run(task_status=task_status))
                with trio.CancelScope(shield=True):
                    await outcomes.append(ours, "x")()
    assert outcomes.results["x"] == "OutcomeUnknownForNow"


async def test_a_caller_that_must_not_wait_is_called_back_once(autojump_clock: trio.testing.MockClock) -> None:
    log = MemoryLog()
    async with open_stack(log) as stack:
        outcomes: list[object] = []
        stack.appender.submit(create("x"), outcomes.append, deadline=SOON)
        stack.appender.submit(create("x"), outcomes.append, deadline=SOON)
        assert outcomes == []
        await wait_all_tasks_blocked()
        assert isinstance(outcomes[0], tuple)
        assert isinstance(outcomes[1], Rejected)
        with log.hold("append") as gate:
            stack.appender.submit(create("sent"), outcomes.append, deadline=1)
            await gate.wait_arrived()
            stack.appender.submit(create("too-late"), outcomes.append, deadline=1)
            await trio.sleep(2)
        await wait_all_tasks_blocked()
        assert [type(each) for each in outcomes[2:]] == [tuple, LogUnavailable]


async def test_submit_raises_queue_full_at_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "WAITING_TRANSACTIONS", 2)
    log = MemoryLog()
    async with open_stack(log) as stack:
        outcomes: list[object] = []
        for name in "xy":
            stack.appender.submit(create(name), outcomes.append, deadline=SOON)
        with pytest.raises(QueueFull):
            stack.appender.submit(create("z"), outcomes.append, deadline=SOON)
        await wait_all_tasks_blocked()
        assert len(outcomes) == 2


async def test_the_appender_can_be_started_again() -> None:
    log = MemoryLog()
    tail = Tail(log, Views(describe_simply))
    ours = Appender(log, tail)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda *, task_status: tail.run(task_status=task_status))
        for name in "xy":
            async with trio.open_nursery() as running:
                await running.start(lambda *, task_status: ours.run(task_status=task_status))
                await ours.append(create(name), deadline=math.inf)
                running.cancel_scope.cancel()
        nursery.cancel_scope.cancel()
    assert log.store.revision == 2


class PoisonedLog(MemoryLog):
    """Rejects every batch with one particular name, as a database rejects data that it cannot store."""

    async def append(self, batch: Batch) -> BatchResult:
        if any(change.key.name == "poison" for each in batch.transactions for change in each.changes):
            raise LogError("the database refused the data")
        return await super().append(batch)


async def test_data_that_the_log_rejects_fail_alone(autojump_clock: trio.testing.MockClock) -> None:
    async with open_stack(PoisonedLog(MemoryStore())) as stack:
        outcomes: dict[str, object] = {}
        for name in ("a", "poison", "b"):
            stack.appender.submit(
                transaction(put(pod(name), expected=0)), functools.partial(outcomes.__setitem__, name), deadline=SOON
            )
        await wait_all_tasks_blocked()
        assert isinstance(outcomes["poison"], LogError)
        assert isinstance(outcomes["a"], tuple)
        assert isinstance(outcomes["b"], tuple)
