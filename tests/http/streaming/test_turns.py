"""Turns of sessions within the passes of the event loop."""

from __future__ import annotations

import time

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kubechronicle.http.streaming import turns
from kubechronicle.http.streaming.turns import AWAKE, LEAST, TURN_BYTES, of_this_loop

SESSIONS = 100


class Passes(trio.abc.Instrument):
    """Counts the passes of the event loop."""

    number = 0

    def after_io_wait(self, timeout: float) -> None:
        self.number += 1


@pytest.fixture
async def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    monkeypatch.setattr(turns, "BUDGET", 0.0)
    counted = Passes()
    trio.lowlevel.add_instrument(counted)
    return counted


async def taken_by(sessions: int, passes: Passes, size: int = 0) -> list[tuple[int, int]]:
    """Let so many sessions be ready at once. Returns (pass, session) of each turn."""
    found: list[tuple[int, int]] = []
    start, all_turns = trio.Event(), of_this_loop()

    async def session(number: int) -> None:
        await start.wait()
        await all_turns.take()
        found.append((passes.number, number))
        all_turns.note(size)

    async with trio.open_nursery() as nursery:
        for number in range(sessions):
            nursery.start_soon(session, number)
        await wait_all_tasks_blocked()
        start.set()
    return found


async def test_a_long_pass_has_the_least_turns(passes: Passes) -> None:
    found = await taken_by(SESSIONS, passes)
    assert len(found) == SESSIONS
    by_pass = [number for number, _ in found]
    assert max(by_pass.count(number) for number in by_pass) == LEAST
    assert by_pass[-1] - by_pass[0] < SESSIONS / LEAST + 3, "no pass is left empty"


async def test_a_short_pass_has_all_turns(passes: Passes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "BUDGET", 60.0)
    found = await taken_by(SESSIONS, passes)
    assert len({number for number, _ in found}) == 1


async def test_a_large_read_counts_for_several_turns(passes: Passes) -> None:
    found = await taken_by(SESSIONS, passes, size=LEAST * TURN_BYTES)
    assert len({number for number, _ in found}) == SESSIONS


async def test_other_tasks_run_while_sessions_wait(passes: Passes) -> None:
    """A request that begins with 100 sessions that work for a millisecond each is over after a few."""
    all_turns, done, seen = of_this_loop(), 0, SESSIONS

    async def session() -> None:
        nonlocal done
        await all_turns.take()
        begun = time.perf_counter()
        while time.perf_counter() - begun < 0.001:
            pass
        done += 1

    async def request() -> None:
        nonlocal seen
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        seen = done

    async with trio.open_nursery() as nursery:
        for _ in range(SESSIONS):
            nursery.start_soon(session)
        nursery.start_soon(request)
    assert done == SESSIONS
    assert seen <= 3 * LEAST


@pytest.mark.parametrize("cancelled", [1, LEAST, LEAST + AWAKE, SESSIONS - 1])
async def test_a_session_that_is_cancelled_holds_up_no_other(passes: Passes, cancelled: int) -> None:
    all_turns, gone = of_this_loop(), 0

    async def session() -> None:
        nonlocal gone
        await all_turns.take()
        gone += 1

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(SESSIONS - cancelled):
                nursery.start_soon(session)
            async with trio.open_nursery() as others:
                for _ in range(cancelled):
                    others.start_soon(session)
                await trio.lowlevel.checkpoint()
                others.cancel_scope.cancel()
        assert gone >= SESSIONS - cancelled
        await all_turns.take()
    assert all_turns._awake == 0
    assert not all_turns._asleep
