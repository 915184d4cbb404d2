"""Clocks of the tests that jump (conftest.py)."""

from __future__ import annotations

import threading

import trio
from trio.testing import MockClock


async def test_the_clock_does_not_jump_while_a_thread_works(autojump_clock: MockClock) -> None:
    began, has_slept, may_end = trio.current_time(), trio.Event(), threading.Event()

    async def sleep() -> None:
        await trio.sleep(60)
        has_slept.set()
        may_end.set()  # too early: the thread still works

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleep)
        early = await trio.to_thread.run_sync(may_end.wait, 0.05)
        assert not early
        assert trio.current_time() == began
        await has_slept.wait()
    assert trio.current_time() == began + 60
