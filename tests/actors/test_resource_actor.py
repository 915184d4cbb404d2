"""The resource actor: its pure decision, and its commits when the actor or the appender fails."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from kubechronicle.actors.errors import ActorCrashed, MailboxFull
from kubechronicle.actors.resource_actor import (
    APPEND,
    WAIT,
    CommitOutcome,
    KeyState,
    ResourceActor,
    WriteConflict,
    decide,
)
from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.eventlog.errors import LogUnavailable, OutcomeUnknownForNow
from kubechronicle.eventlog.records import Change, Key, Operation, Rejected, Transaction, Who
from kubechronicle.eventlog.restarts import TaskFailures

WHO = Who(user="test")


@pytest.mark.parametrize(
    ("revision", "in_flight", "expected", "decision"),
    [
        (0, False, 0, APPEND),
        (7, False, 7, APPEND),
        (7, False, 0, WriteConflict(7)),
        (7, False, 6, WriteConflict(7)),
        (0, False, 7, APPEND),  # the preparing request saw a newer state than this view: the log decides
        (7, True, 7, WAIT),
        (0, True, 0, WAIT),
    ],
)
def test_decide(revision: int, in_flight: bool, expected: int, decision: object) -> None:
    assert decide(KeyState(revision, in_flight), expected) == decision


def transaction(name: str, expected: int = 0) -> Transaction:
    change = Change(
        key=Key("configmaps", "default", name),
        uid="u",
        expected=expected,
        operation=Operation.UPDATE if expected else Operation.CREATE,
        body=b"{}",
    )
    return Transaction(changes=(change,), who=WHO)


class Appender:
    """Collects submitted transactions, which the test finishes."""

    def __init__(self) -> None:
        self.revisions: dict[str, int] = {}
        self.pending: list[tuple[Transaction, Callable[[CommitOutcome], None]]] = []
        self.full = False

    def submit(self, transaction: Transaction, done: Callable[[CommitOutcome], None], *, deadline: float) -> None:
        if self.full:
            raise MailboxFull("appender", 1)
        self.pending.append((transaction, done))

    def commit_next(self) -> None:
        tx, done = self.pending.pop(0)
        name = tx.changes[0].key.name
        self.revisions[name] = self.revisions.get(name, 0) + 1
        done(())

    def current(self, namespace: str, name: str) -> int:
        return self.revisions.get(name, 0)


def actor_of(appender: Appender) -> ResourceActor:
    return ResourceActor("configmaps", current_revision=appender.current, submit=appender.submit)


async def test_commits_of_different_keys_are_in_flight_together_those_of_one_key_wait() -> None:
    appender = Appender()
    actor = actor_of(appender)
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        first = actor.begin(transaction("a"), deadline=1e9)
        other = actor.begin(transaction("b"), deadline=1e9)
        second = actor.begin(transaction("a"), deadline=1e9)
        await trio.testing.wait_all_tasks_blocked()
        assert [tx.changes[0].key.name for tx, _ in appender.pending] == ["a", "b"]
        appender.commit_next()
        appender.commit_next()
        assert await first.wait() == ()
        assert await other.wait() == ()
        rejected = await second.wait()
        assert isinstance(rejected, Rejected)
        assert rejected.actual == 1
        assert actor.statistics().in_flight == 0
        nursery.cancel_scope.cancel()


async def test_a_waiting_commit_is_appended_if_its_expectation_holds_then() -> None:
    appender = Appender()
    actor = actor_of(appender)
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        actor.begin(transaction("a"), deadline=1e9)
        second = actor.begin(transaction("a", expected=1), deadline=1e9)
        third = actor.begin(transaction("a", expected=2), deadline=1e9)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            appender.commit_next()
            await trio.testing.wait_all_tasks_blocked()
        assert await second.wait() == ()
        assert await third.wait() == ()
        nursery.cancel_scope.cancel()


async def test_an_abandoned_commit_is_not_submitted() -> None:
    appender = Appender()
    actor = actor_of(appender)
    commit = actor.begin(transaction("a"), deadline=1e9)
    with trio.move_on_after(0):
        await commit.wait()
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        await trio.testing.wait_all_tasks_blocked()
        assert appender.pending == []
        nursery.cancel_scope.cancel()


async def test_a_caller_gets_an_answer_at_the_deadline_unless_cancelled_before(
    autojump_clock: trio.testing.MockClock,
) -> None:
    appender = Appender()
    actor = actor_of(appender)
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        begun = trio.current_time()
        sent = actor.begin(transaction("a"), deadline=begun + 5)
        assert isinstance(await sent.wait(), OutcomeUnknownForNow)
        behind = actor.begin(transaction("a"), deadline=begun + 7)
        with trio.move_on_at(begun + 9):  # later: the commit's own deadline comes first
            assert isinstance(await behind.wait(), LogUnavailable)
        for limited in (True, False):
            commit = actor.begin(transaction("a"), deadline=begun + (11 if limited else 13))
            with trio.move_on_at(begun + 12) as limit:
                await commit.wait(limited=limited)
            assert limit.cancelled_caught
            assert commit.abandoned
        assert trio.current_time() == begun + 12
        appender.commit_next()
        assert await sent.wait() == ()
        await trio.testing.wait_all_tasks_blocked()
        assert appender.pending == []  # the commits behind it were abandoned
        nursery.cancel_scope.cancel()


async def test_the_caller_gets_the_error_of_a_full_appender() -> None:
    appender = Appender()
    appender.full = True
    actor = actor_of(appender)
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        outcome = await actor.begin(transaction("a"), deadline=1e9).wait()
        assert isinstance(outcome, MailboxFull)
        appender.full = False
        again = actor.begin(transaction("a"), deadline=1e9)
        await trio.testing.wait_all_tasks_blocked()
        appender.commit_next()
        assert await again.wait() == ()
        nursery.cancel_scope.cancel()


async def test_a_crash_between_decide_and_append_loses_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """A commit being decided fails, one in flight gets its outcome, one in the mailbox is handled."""
    appender = Appender()
    crash_on = {"b"}

    def current(resource: str, namespace: str, name: str) -> Any:
        if name in crash_on:
            crash_on.discard(name)
            raise RuntimeError("injected")
        revision = appender.current(namespace, name)
        return SimpleNamespace(revision=revision) if revision else None

    failures = TaskFailures()
    actors = ResourceActors(peek=current, submit=appender.submit, failures=failures)
    async with trio.open_nursery() as nursery:
        await nursery.start(actors.run)
        in_flight = actors.begin(transaction("a"), deadline=1e9)
        in_hand = actors.begin(transaction("b"), deadline=1e9)
        in_mailbox = actors.begin(transaction("c"), deadline=1e9)
        assert isinstance(await in_hand.wait(), ActorCrashed)
        await trio.sleep(1)
        assert [tx.changes[0].key.name for tx, _ in appender.pending] == ["a", "c"]
        appender.commit_next()
        appender.commit_next()
        assert await in_flight.wait() == ()
        assert await in_mailbox.wait() == ()
        assert sum(failures.totals.values()) == 1
        nursery.cancel_scope.cancel()


async def test_a_commit_waiting_for_a_key_fails_if_the_actor_crashes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    appender = Appender()
    crashes = False

    def current(resource: str, namespace: str, name: str) -> Any:
        if crashes:
            raise RuntimeError("injected")
        revision = appender.current(namespace, name)
        return SimpleNamespace(revision=revision) if revision else None

    failures = TaskFailures()
    actors = ResourceActors(peek=current, submit=appender.submit, failures=failures)
    async with trio.open_nursery() as nursery:
        await nursery.start(actors.run)
        first, *behind = [actors.begin(transaction("a"), deadline=1e9) for _ in range(3)]
        await trio.testing.wait_all_tasks_blocked()
        crashes = True
        appender.commit_next()
        assert await first.wait() == ()
        with trio.fail_after(10):
            for commit in behind:
                assert isinstance(await commit.wait(), ActorCrashed)
        nursery.cancel_scope.cancel()
