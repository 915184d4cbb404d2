"""The Reflector: list, follow, resync, and list again after lost history or an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from itertools import count
from typing import Any

import pytest
import trio
from in_process import MAPS, InProcess, configmap, open_server
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.actors.loops.reflector import RETRY_DELAY, Reflector
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.supervisor import ChildSpec, Supervisor
from kubechronicle.api.errors import status
from kubechronicle.api.selectors.field_selectors import parse_field_selector
from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.memory.memory_log import Fault

LONG = 100.0  # virtual seconds


class Loop:
    """Records its calls in order: "list" with the time, and (operation, name) of each change."""

    def __init__(self, server: InProcess, **options: Any) -> None:
        self.calls: list[Any] = []
        self.lists: list[float] = []
        self.errors: list[Exception] = []
        self.before_list: Callable[[], Awaitable[None]] | None = None
        self.before_changes: Callable[[], Awaitable[None]] | None = None
        self.due: float | None = None
        self.configmaps = server.store.registry.builtin("", "v1", "configmaps")
        options = {"on_changes": self.on_changes, "on_error": self.errors.append} | options
        self.reflector = Reflector(
            server.store.reads, self.configmaps, component="test", on_list=self.on_list, **options
        )

    async def on_list(self) -> float | None:
        self.calls.append("list")
        self.lists.append(trio.current_time())
        if self.before_list is not None:
            await self.before_list()
        return self.due

    async def on_changes(self, events: Sequence[Event]) -> None:
        if self.before_changes is not None:
            await self.before_changes()
        self.calls += [(event.operation.name, event.entry.key.name) for event in events]


async def make(server: InProcess, *names: str) -> None:
    for name in names:
        await server.post(MAPS, configmap(name))


def once(action: Callable[[], Any]) -> Callable[[], Awaitable[None]]:
    """Return a callback that calls ``action`` the first time only."""
    calls = count()

    async def callback() -> None:
        if next(calls) == 0:
            await trio.lowlevel.checkpoint()
            action()

    return callback


def raise_(error: Exception) -> None:
    raise error


@contextmanager
def nothing_in_memory(server: InProcess) -> Iterator[None]:
    """Drop the recent events of ConfigMaps afterwards, so that cursors which lag read the log."""
    yield
    server.store.reads.views["configmaps"].window.forget(server.log.store.revision)


# -- list and follow --------------------------------------------------------------------------------------------------


async def test_changes_follow_the_list(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await make(server, "a")
        loop = Loop(server)
        assert loop.reflector.revision == -1
        server.nursery.start_soon(loop.reflector.run)
        await trio.sleep(1)
        assert loop.calls == ["list"]
        await make(server, "b")
        await server.patch(f"{MAPS}/a", {"data": {"x": "y"}})
        await server.delete(f"{MAPS}/b")
        await trio.sleep(LONG)
        assert loop.calls == ["list", ("CREATE", "b"), ("UPDATE", "a"), ("DELETE", "b")]
        assert loop.reflector.revision == server.log.store.revision
        assert not loop.errors


async def test_changes_during_the_list_are_followed(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        loop = Loop(server)
        loop.before_list = lambda: make(server, "a", "b")
        server.nursery.start_soon(loop.reflector.run)
        await trio.sleep(LONG)
        assert loop.calls == ["list", ("CREATE", "a"), ("CREATE", "b")]


async def test_the_view_is_the_listed_state_when_on_list_begins(autojump_clock: MockClock) -> None:
    """Another task writes all the time. Every object is either in the view then, or among the changes."""
    async with open_server() as server:
        seen: list[str] = []

        async def write() -> None:
            for number in range(50):
                await make(server, f"m{number:02}")

        async def on_list() -> None:
            seen.extend(entry.key.name for entry in server.store.reads.entries("configmaps", ""))

        async def on_changes(events: Sequence[Event]) -> None:
            seen.extend(event.entry.key.name for event in events)

        rt = server.store.registry.builtin("", "v1", "configmaps")
        server.nursery.start_soon(write)
        await trio.lowlevel.checkpoint()
        reflector = Reflector(server.store.reads, rt, component="test", on_list=on_list, on_changes=on_changes)
        server.nursery.start_soon(reflector.run)
        await trio.sleep(LONG)
        assert seen == [f"m{number:02}" for number in range(50)]


async def test_without_on_changes_every_batch_calls_on_list(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        loop = Loop(server, on_changes=None)
        server.nursery.start_soon(loop.reflector.run)
        await trio.sleep(1)
        await make(server, "a")
        await trio.sleep(LONG)
        assert loop.calls == ["list", "list"]


async def test_a_selection_limits_the_changes(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        rt = server.store.registry.builtin("", "v1", "configmaps")
        selection = Selection(namespace="default", fields=parse_field_selector("metadata.name=b", rt))
        loop = Loop(server, selection=selection)
        server.nursery.start_soon(loop.reflector.run)
        await trio.sleep(1)
        await make(server, "a", "b", "c")
        await trio.sleep(LONG)
        assert loop.calls == ["list", ("CREATE", "b")]


# -- resync -----------------------------------------------------------------------------------------------------------


async def test_resync_after_silence(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        loop = Loop(server, resync=60.0)
        server.nursery.start_soon(loop.reflector.run)
        await trio.sleep(30)
        await make(server, "a")  # puts the resync off
        start = trio.current_time()
        await trio.sleep(130)
        assert [round(time - start) for time in loop.lists[1:]] == [60, 120]


async def test_no_resync_unless_wanted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        loop = Loop(server)
        server.nursery.start_soon(loop.reflector.run)
        await trio.sleep(50_000)
        assert loop.calls == ["list"]


async def test_on_list_may_choose_its_next_call(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        loop = Loop(server, resync=60.0)
        loop.due = trio.current_time() + 5
        server.nursery.start_soon(loop.reflector.run)
        await trio.sleep(1)
        due, loop.due = loop.due, None
        await trio.sleep(70)
        assert loop.lists[1:] == [due, due + 60]


# -- lost history -----------------------------------------------------------------------------------------------------


async def test_lists_again_after_compaction(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        loop = Loop(server)
        gate = trio.Event()
        loop.before_changes = gate.wait
        server.nursery.start_soon(loop.reflector.run)
        await trio.sleep(1)
        with nothing_in_memory(server):
            await make(server, "a")
            await trio.sleep(1)  # the loop waits in on_changes
            await make(server, "b", "c")
        server.log.store.compact(server.log.store.revision)
        before = trio.current_time()
        gate.set()
        await wait_all_tasks_blocked()
        assert loop.calls == ["list", ("CREATE", "a"), "list"]
        assert loop.lists[1] == before, "without a delay"
        assert not loop.errors
        await make(server, "d")
        await trio.sleep(1)
        assert loop.calls[3:] == [("CREATE", "d")]


async def test_changes_that_left_memory_are_read_from_the_log(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        loop = Loop(server)
        gate = trio.Event()
        loop.before_changes = gate.wait
        server.nursery.start_soon(loop.reflector.run)
        await trio.sleep(1)
        with nothing_in_memory(server):
            await make(server, "a")
            await trio.sleep(1)
            await make(server, "b", "c")
        gate.set()
        await trio.sleep(1)
        assert loop.calls == ["list", ("CREATE", "a"), ("CREATE", "b"), ("CREATE", "c")]


# -- errors -----------------------------------------------------------------------------------------------------------


async def test_an_unreachable_log_is_read_again_from_the_same_revision(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        loop = Loop(server)
        gate = trio.Event()
        loop.before_changes = gate.wait
        server.nursery.start_soon(loop.reflector.run)
        await trio.sleep(1)
        with nothing_in_memory(server):
            await make(server, "a")
            await trio.sleep(1)
            await make(server, "b", "c")
        server.log.fail_next("read_resource", Fault.UNAVAILABLE)
        gate.set()
        await trio.sleep(RETRY_DELAY / 2)
        assert loop.calls == ["list", ("CREATE", "a")]
        assert len(loop.errors) == 1
        await trio.sleep(RETRY_DELAY)
        assert loop.calls == ["list", ("CREATE", "a"), ("CREATE", "b"), ("CREATE", "c")]


@pytest.mark.parametrize("callback", ["before_list", "before_changes"])
async def test_after_an_error_in_a_callback_it_lists_again(autojump_clock: MockClock, callback: str) -> None:
    async with open_server() as server:
        loop = Loop(server)
        error = status.internal_error("later")
        setattr(loop, callback, once(lambda: raise_(error)))
        server.nursery.start_soon(loop.reflector.run)
        await trio.sleep(RETRY_DELAY / 2)
        failed = trio.current_time()
        await make(server, "a")
        await trio.sleep(RETRY_DELAY * 2)
        assert loop.errors == [error]
        assert loop.calls == ["list", "list"], "the second list has the changes"
        since = failed if callback == "before_changes" else loop.lists[0]
        assert loop.lists[1] == since + RETRY_DELAY
        await make(server, "b")
        await trio.sleep(1)
        assert loop.calls[2:] == [("CREATE", "b")]


async def test_a_list_that_fails_is_repeated_with_the_given_delays(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        loop = Loop(server, delays=iter([2.0, 5.0, 11.0]))
        server.log.fail_next("head", *[Fault.UNAVAILABLE] * 2)
        start = trio.current_time()
        server.nursery.start_soon(loop.reflector.run)
        await trio.sleep(LONG)
        assert len(loop.errors) == 2
        assert loop.lists == [start + 7.0]


async def test_other_errors_pass_to_the_supervisor(autojump_clock: MockClock) -> None:
    """A bug in a callback ends the loop. Its supervisor starts it again, with a list."""
    async with open_server() as server:
        loop = Loop(server)
        loop.before_changes = once(lambda: raise_(ValueError("a bug")))

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            task_status.started()
            await loop.reflector.run()

        supervisor = Supervisor("loops", [ChildSpec(name="loop", run=run)])
        server.nursery.start_soon(supervisor.run)
        await trio.sleep(1)
        await make(server, "a")
        await trio.sleep(LONG)
        assert supervisor.restarts_total == 1
        assert loop.calls == ["list", "list"]
        assert not loop.errors
        await make(server, "b")
        await trio.sleep(1)
        assert loop.calls[2:] == [("CREATE", "b")]


# -- cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["list", "on_list", "follow", "on_changes", "delay"])
async def test_cancellation_passes_through(autojump_clock: MockClock, place: str) -> None:
    async with open_server() as server, AsyncExitStack() as stack:
        loop = Loop(server)
        match place:
            case "list":
                stack.enter_context(server.log.hold("head"))
            case "on_list":
                loop.before_list = trio.sleep_forever
            case "on_changes":
                loop.before_changes = trio.sleep_forever
            case "delay":
                loop.before_list = once(lambda: raise_(status.internal_error("later")))
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(loop.reflector.run)
                await trio.sleep(RETRY_DELAY / 2)
                if place == "on_changes":
                    await make(server, "a")
                    await trio.sleep(RETRY_DELAY / 2)
                scope.cancel()
        assert scope.cancelled_caught
        calls = list(loop.calls)
        await trio.sleep(LONG)
        assert loop.calls == calls, "nothing runs any more"
