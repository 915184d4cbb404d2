"""Large work: places taken in turns by users, bounds on waiting requests and held bytes, and the thread."""

from __future__ import annotations

import threading
import time

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from kubechronicle.actors.fair_share import WAITING, WAITING_OF_USER
from kubechronicle.actors.large_work import (
    HELD_BY_USER,
    HELD_BYTES,
    LARGE,
    LARGE_BYTES,
    LONG,
    QUICK_BYTES,
    ROOM,
    SHORT,
    SHORT_ROOM,
    SLOW,
    SLOW_FOR,
    SLOW_USERS,
    LargeWork,
    Turn,
)
from kubechronicle.api.errors.status import StatusError

BIG = SHORT + 1
PLACES = 2
HALF = ROOM // PLACES


async def taken(work: LargeWork) -> list[Turn]:
    """Return turns that hold all places."""
    turns = [work.turn("first") for _ in range(PLACES)]
    for turn in turns:
        await turn.begin(HALF)
    return turns


async def test_small_work_runs_at_once_and_large_work_in_a_thread() -> None:
    work = LargeWork()
    turn = work.turn("alice")
    await turn.begin(LARGE)
    assert work.idle
    assert await turn.run(LARGE, threading.get_ident) == threading.get_ident()
    assert await turn.run(BIG, threading.get_ident) != threading.get_ident()
    await turn.begin(BIG)
    assert not work.idle
    # Another input of the request is large.
    assert await turn.run(0, threading.get_ident) != threading.get_ident()
    turn.end()
    assert work.idle


async def test_large_work_runs_on_the_event_loop_while_it_is_quick(autojump_clock: trio.testing.MockClock) -> None:
    work = LargeWork()
    alice, bob = work.turn("alice"), work.turn("bob")
    await alice.begin(QUICK_BYTES)
    assert not work.idle  # it counts among the places all the same
    assert await alice.run(QUICK_BYTES, threading.get_ident) == threading.get_ident()
    await alice.run(QUICK_BYTES, use_cpu)
    assert await alice.run(QUICK_BYTES, threading.get_ident) == threading.get_ident()  # once is not counted
    await alice.run(QUICK_BYTES, use_cpu)
    assert await alice.run(QUICK_BYTES, threading.get_ident) != threading.get_ident()
    assert await bob.run(QUICK_BYTES, threading.get_ident) == threading.get_ident()
    await trio.sleep(SLOW_FOR)
    assert await alice.run(QUICK_BYTES, threading.get_ident) == threading.get_ident()
    alice.end()


async def test_work_for_later_requests_does_not_count_as_slow() -> None:
    turn = LargeWork().turn("alice")
    assert await turn.run_once(LARGE, threading.get_ident) == threading.get_ident()
    assert await turn.run_once(LARGE + 1, threading.get_ident) != threading.get_ident()
    await turn.run_once(LARGE + 1, use_cpu)
    assert await turn.run(QUICK_BYTES, threading.get_ident) == threading.get_ident()


async def test_work_that_fails_slowly_counts_as_slow() -> None:
    turn = LargeWork().turn("alice")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await turn.run(QUICK_BYTES, lambda: use_cpu() / 0)
    assert await turn.run(QUICK_BYTES, threading.get_ident) != threading.get_ident()


async def test_slow_work_long_ago_does_not_count(autojump_clock: trio.testing.MockClock) -> None:
    turn = LargeWork().turn("alice")
    for _ in range(3):
        await turn.run(QUICK_BYTES, use_cpu)
        await trio.sleep(SLOW_FOR)
    assert await turn.run(QUICK_BYTES, threading.get_ident) == threading.get_ident()


async def test_with_many_slow_users_all_large_work_runs_in_the_thread() -> None:
    work = LargeWork()
    for number in range(SLOW_USERS):
        await work.turn(f"user-{number}").run(QUICK_BYTES, use_cpu)
    assert await work.turn("alice").run(QUICK_BYTES, threading.get_ident) != threading.get_ident()
    assert await work.turn("alice").run(LARGE, threading.get_ident) == threading.get_ident()


def use_cpu() -> int:
    """Compute for longer than SLOW."""
    end = time.thread_time() + 1.1 * SLOW
    while time.thread_time() < end:
        pass
    return 1


async def test_the_event_loop_runs_while_large_work_waits() -> None:
    work = LargeWork()
    turn = work.turn("alice")
    go_on = threading.Event()

    async def computed() -> None:
        await turn.run(BIG, go_on.wait)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(computed)
        await wait_all_tasks_blocked()
        go_on.set()
    assert work.idle


async def test_users_take_turns() -> None:
    work = LargeWork()
    turns = await taken(work)
    order: list[str] = []

    async def wait(user: str) -> None:
        turn = work.turn(user)
        await turn.begin(HALF)
        order.append(user)
        turn.end()

    async with trio.open_nursery() as nursery:
        for user in ("alice", "alice", "alice", "bob"):
            nursery.start_soon(wait, user)
            await wait_all_tasks_blocked()
        turns[0].end()
    assert order == ["alice", "bob", "alice", "alice"]
    turns[1].end()
    assert work.idle


async def test_too_many_waiting_requests_are_rejected() -> None:
    work = LargeWork()
    turns = await taken(work)

    async def wait(user: str) -> None:
        await work.turn(user).begin(BIG)

    async with trio.open_nursery() as nursery:
        for _ in range(WAITING_OF_USER):
            nursery.start_soon(wait, "alice")
        await wait_all_tasks_blocked()
        with pytest.raises(StatusError) as rejected:
            await work.turn("alice").begin(BIG)
        assert (rejected.value.code, rejected.value.headers) == (429, {"Retry-After": "1"})
        for index in range(WAITING - WAITING_OF_USER):
            nursery.start_soon(wait, f"user-{index}")
        await wait_all_tasks_blocked()
        with pytest.raises(StatusError):
            await work.turn("bob").begin(BIG)
        nursery.cancel_scope.cancel()
    for turn in turns:
        turn.end()
    assert work.idle


@pytest.mark.parametrize("given", [False, True])
async def test_a_cancelled_request_leaves_its_place_to_the_next(given: bool) -> None:
    work = LargeWork()
    turns = await taken(work)
    scope = trio.CancelScope()

    async def cancelled() -> None:
        turn = work.turn("alice")
        with scope:
            try:
                await turn.begin(BIG)
            finally:
                turn.end()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancelled)
        await wait_all_tasks_blocked()
        if given:  # a place, before the request runs again
            turns.pop().end()
        scope.cancel()
    for turn in turns:
        turn.end()
    assert work.idle


async def test_a_paused_turn_takes_another_place() -> None:
    work = LargeWork()
    turn = work.turn("alice")
    await turn.begin(BIG)
    turn.pause()
    assert work.idle
    await turn.begin(BIG)
    assert not work.idle
    turn.end()
    turn.end()
    assert work.idle


def test_the_bytes_of_large_bodies_are_bounded() -> None:
    async def main() -> None:
        work = LargeWork()
        first, second = work.turn("alice"), work.turn("bob")
        first.reserve(LARGE_BYTES)
        assert work.idle
        first.reserve(HELD_BY_USER - 2 * LARGE_BYTES)
        first.reserve(HELD_BY_USER)
        with pytest.raises(StatusError, match="too many large requests"):
            work.turn("alice").reserve(LARGE_BYTES + 1)  # the user has the half of all already
        second.reserve(HELD_BYTES - HELD_BY_USER - LARGE_BYTES)
        with pytest.raises(StatusError, match="too many large requests"):
            work.turn("carl").reserve(LARGE_BYTES + 1)
        second.end()
        first.end()
        second.reserve(LARGE_BYTES + 1)
        second.end()
        assert work.idle

    trio.run(main)


async def test_many_small_places_fit_where_two_large_ones_do() -> None:
    work = LargeWork()
    turns = [work.turn("alice") for _ in range(ROOM // BIG)]
    for turn in turns:
        await turn.begin(BIG)
    with trio.move_on_after(0) as waiting:
        await work.turn("bob").begin(BIG)
    assert waiting.cancelled_caught
    largest = work.turn("bob")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(largest.begin, 2 * ROOM)
        await wait_all_tasks_blocked()
        for turn in turns:
            turn.end()
    assert not work.idle  # alone, even a request larger than the room has a place
    largest.end()
    assert work.idle


async def run_in_order(work: LargeWork, pieces: list[tuple[str, int]]) -> list[str]:
    """Run pieces of these users and sizes, all sent while the first one of each lane runs, and return their order."""
    order: list[str] = []
    begun, go_on = threading.Semaphore(0), threading.Event()

    def piece(user: str) -> None:
        begun.release()
        go_on.wait()
        order.append(user)

    async with trio.open_nursery() as nursery:
        for user, size in pieces:
            nursery.start_soon(work.turn(user).run, size, piece, user)
            await wait_all_tasks_blocked()
        go_on.set()
    return order


async def test_a_user_waits_for_one_piece_of_another_one() -> None:
    order = await run_in_order(LargeWork(), [("alice", BIG)] * 4 + [("bob", BIG), ("carl", BIG), ("bob", BIG)])
    assert order == ["alice", "bob", "carl", "alice", "bob", "alice", "alice"]


async def test_a_small_write_does_not_wait_for_large_ones() -> None:
    work = LargeWork()
    places = await taken(work)  # of the long lane
    go_on = threading.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(work.turn("alice").run, BIG, go_on.wait)
        nursery.start_soon(work.turn("alice").begin, BIG)
        await wait_all_tasks_blocked()
        bob = work.turn("bob")
        await bob.begin(SHORT)
        assert await bob.run(SHORT, threading.get_ident) != threading.get_ident()
        long = work.statistics()["long"]
        assert (long.waiting, long.pieces_waiting, long.pieces) == (1, 1, 0)
        go_on.set()
        for turn in [*places, bob]:
            turn.end()
    assert work.statistics()["short"].pieces == 1
    assert work.statistics()["long"].pieces == 2


async def test_a_user_whose_short_work_is_long_leaves_the_short_lane(autojump_clock: trio.testing.MockClock) -> None:
    work = LargeWork()

    def long() -> None:
        end = time.thread_time() + LONG
        while time.thread_time() < end:
            pass

    await work.turn("alice").run(SHORT, long)
    await work.turn("alice").run(SHORT, int)
    await work.turn("bob").run(SHORT, int)
    assert [lane.pieces for lane in work.statistics().values()] == [2, 1]
    await trio.sleep(SLOW_FOR)
    await work.turn("alice").run(SHORT, int)
    await work.turn("alice").run_once(SHORT, long)  # for all users: it says nothing about her work
    await work.turn("alice").run(SHORT, int)
    assert [lane.pieces for lane in work.statistics().values()] == [5, 1]


async def test_an_abandoned_piece_keeps_the_thread_until_it_ends() -> None:
    work = LargeWork()
    begun, go_on, order = threading.Event(), threading.Event(), list[str]()
    scope = trio.CancelScope()

    def piece() -> None:
        begun.set()
        go_on.wait()
        order.append("alice")

    async def abandoned() -> None:
        with scope:
            await work.turn("alice").run(SHORT, piece)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(abandoned)
        await trio.to_thread.run_sync(begun.wait)
        scope.cancel()
        await wait_all_tasks_blocked()
        nursery.start_soon(work.turn("bob").run, SHORT, order.append, "bob")
        await wait_all_tasks_blocked()
        go_on.set()
    assert order == ["alice", "bob"]
    await work.turn("alice").run(SHORT, int)  # it had not ended, so it was long
    assert work.statistics()["long"].pieces == 1


async def test_places_of_the_short_lane_are_bounded() -> None:
    work = LargeWork()
    turns = [work.turn("alice") for _ in range(SHORT_ROOM // SHORT)]
    for turn in turns:
        await turn.begin(SHORT)
    with trio.move_on_after(0) as waiting:
        await work.turn("bob").begin(SHORT)
    assert waiting.cancelled_caught
    for turn in turns:
        turn.end()
    assert work.idle
