"""Supervision: order, rest_for_one, intensity, stopping."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from kubechronicle.actors.errors import SupervisorGaveUp
from kubechronicle.actors.supervisor import ChildSpec, Supervisor


class Stage:
    """Children that tell when they start and stop, and die when told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.deaths: dict[str, trio.Event] = {}

    def child(self, name: str, *, stop: Callable[[], Awaitable[None]] | None = None) -> ChildSpec:
        async def run(*, task_status: trio.TaskStatus[Any]) -> None:
            self.told.append(f"+{name}")
            self.deaths[name] = trio.Event()
            task_status.started()
            try:
                await self.deaths[name].wait()
                raise RuntimeError(f"{name} dies")
            finally:
                self.told.append(f"-{name}")

        return ChildSpec(name=name, run=run, stop=stop)


async def test_starts_in_order_and_stops_in_reverse(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage()
    supervisor = Supervisor("t", [stage.child("a"), stage.child("b"), stage.child("c")])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        assert stage.told == ["+a", "+b", "+c"]
        supervisor.request_stop()
    assert stage.told[3:] == ["-c", "-b", "-a"]


async def test_a_death_restarts_it_and_what_came_after(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage()
    supervisor = Supervisor("t", [stage.child("a"), stage.child("b"), stage.child("c")])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        stage.told.clear()
        stage.deaths["b"].set()
        await trio.sleep(5)
        assert stage.told == ["-b", "-c", "+b", "+c"]
        assert supervisor.restarts_total == 1
        supervisor.request_stop()


async def test_too_many_deaths_escalate(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage()
    supervisor = Supervisor("t", [stage.child("a"), stage.child("b")], intensity=2, period=60)

    async def killer() -> None:
        for _ in range(3):
            stage.deaths["b"].set()
            await trio.sleep(3)

    with pytest.RaisesGroup(SupervisorGaveUp, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            nursery.start_soon(killer)
    assert stage.told[-1] == "-a"


async def test_old_deaths_are_forgiven(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage()
    supervisor = Supervisor("t", [stage.child("a")], intensity=1, period=10)
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        for _ in range(4):
            stage.deaths["a"].set()
            await trio.sleep(20)
        assert supervisor.restarts_total == 4
        supervisor.request_stop()


async def test_a_child_that_returns_has_failed(autojump_clock: trio.testing.MockClock) -> None:
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


async def test_a_child_that_dies_while_starting_is_tried_again(autojump_clock: trio.testing.MockClock) -> None:
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
        assert stage.told == ["+b"]
        supervisor.request_stop()


async def test_stop_hooks_run_before_the_child_is_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage()

    async def goodbye() -> None:
        stage.told.append("goodbye")

    supervisor = Supervisor("t", [stage.child("a", stop=goodbye)])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        supervisor.request_stop()
    assert stage.told == ["+a", "goodbye", "-a"]


async def test_cancelling_stops_everything(autojump_clock: trio.testing.MockClock) -> None:
    stage = Stage()
    supervisor = Supervisor("t", [stage.child("a"), stage.child("b")])
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        nursery.cancel_scope.cancel()
    assert sorted(stage.told) == ["+a", "+b", "-a", "-b"]
