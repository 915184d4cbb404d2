"""Supervision: order, rest_for_one, intensity, stopping."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from kubechronicle.actors.errors import SupervisorGaveUp
from kubechronicle.actors.supervisor import ChildSpec, Supervisor


class Stage:
    """Children that record their starts and stops, and crash on demand."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.crashes: dict[str, trio.Event] = {}

    def child(self, name: str, *, stop: Callable[[], Awaitable[None]] | None = None) -> ChildSpec:
        async def run(*, task_status: trio.TaskStatus[Any]) -> None:
            self.events.append(f"+{name}")
            self.crashes[name] = trio.Event()
            task_status.started()
            try:
                await self.crashes[name].wait()
                raise RuntimeError(f"{name} crashes")
            finally:
                self.events.append(f"-{name}")

        return ChildSpec(name=name, run=run, stop=stop)


async def test_starts_in_order_and_stops_in_reverse(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage()
    supervisor = Supervisor("t", [stage.child("a"), stage.child("b"), stage.child("c")])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        assert stage.events == ["+a", "+b", "+c"]
        supervisor.request_stop()
    assert stage.events[3:] == ["-c", "-b", "-a"]


async def test_a_crash_restarts_the_child_and_those_after_it(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage()
    supervisor = Supervisor("t", [stage.child("a"), stage.child("b"), stage.child("c")])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        stage.events.clear()
        stage.crashes["b"].set()
        await trio.sleep(5)
        assert stage.events == ["-b", "-c", "+b", "+c"]
        assert supervisor.restarts_total == 1
        supervisor.request_stop()


async def test_too_many_crashes_escalate(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage()
    supervisor = Supervisor("t", [stage.child("a"), stage.child("b")], intensity=2, period=60)

    async def killer() -> None:
        for _ in range(3):
            stage.crashes["b"].set()
            await trio.sleep(3)

    with pytest.RaisesGroup(SupervisorGaveUp, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            nursery.start_soon(killer)
    assert stage.events[-1] == "-a"


async def test_old_crashes_do_not_count(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage()
    supervisor = Supervisor("t", [stage.child("a")], intensity=1, period=10)
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        for _ in range(4):
            stage.crashes["a"].set()
            await trio.sleep(20)
        assert supervisor.restarts_total == 4
        supervisor.request_stop()


async def test_a_child_that_returns_has_crashed(autojump_clock: trio.testing.MockClock) -> None:
    runs = 0

    async def run(*, task_status: trio.TaskStatus[Any]) -> None:
        nonlocal runs
        runs += 1
        task_status.started()
        if runs > 1:
            await trio.sleep_forever()

    supervisor = Supervisor("t", [ChildSpec(name="a", run=run)])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        await trio.sleep(1)
        assert runs == 2
        supervisor.request_stop()


async def test_a_child_that_crashes_while_starting_is_restarted(autojump_clock: trio.testing.MockClock) -> None:
    runs = 0

    async def run(*, task_status: trio.TaskStatus[Any]) -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise OSError("not yet")
        task_status.started()
        await trio.sleep_forever()

    stage = Stage()
    supervisor = Supervisor("t", [ChildSpec(name="a", run=run), stage.child("b")])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        await trio.sleep(5)
        assert runs == 3
        assert stage.events == ["+b"]
        supervisor.request_stop()


async def test_stop_hooks_run_before_the_child_is_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage()

    async def goodbye() -> None:
        stage.events.append("goodbye")

    supervisor = Supervisor("t", [stage.child("a", stop=goodbye)])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        supervisor.request_stop()
    assert stage.events == ["+a", "goodbye", "-a"]


async def test_cancellation_stops_all_children(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage()
    supervisor = Supervisor("t", [stage.child("a"), stage.child("b")])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        nursery.cancel_scope.cancel()
    assert sorted(stage.events) == ["+a", "+b", "-a", "-b"]
