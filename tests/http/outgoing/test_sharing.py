"""Calls that concurrent requests share, and the TTL cache."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kubechronicle.http.outgoing.client import AskError, Outgoing
from kubechronicle.http.outgoing.single_flight import SingleFlight, TtlCache


async def test_a_call_ends_with_the_last_request_that_waits(outgoing: Outgoing) -> None:
    single_flight: SingleFlight[int] = SingleFlight(outgoing)
    started, ended = 0, 0
    go = trio.Event()

    async def ask() -> int:
        nonlocal started, ended
        started += 1
        try:
            await go.wait()
        finally:
            ended += 1
        return started

    results: list[int] = []

    async def join(*, task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED) -> None:
        with trio.CancelScope() as scope:
            task_status.started(scope)
            results.append(await single_flight.join("key", ask))

    async with trio.open_nursery() as nursery:
        first = await nursery.start(join)
        second = await nursery.start(join)
        await trio.testing.wait_all_tasks_blocked()
        assert (started, len(single_flight)) == (1, 1)
        first.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert (started, ended) == (1, 0)
        second.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert (started, ended, len(single_flight)) == (1, 1, 0)
        nursery.start_soon(join)
        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        go.set()
    assert results == [2, 2]
    assert len(single_flight) == 0


async def test_waiting_requests_end_when_the_server_stops() -> None:
    client_pool = Outgoing()
    single_flight: SingleFlight[int] = SingleFlight(client_pool)
    errors: list[AskError] = []

    async def join() -> None:
        with pytest.raises(AskError) as caught:
            await single_flight.join("key", trio.sleep_forever)
        errors.append(caught.value)

    async with trio.open_nursery() as askers, trio.open_nursery() as nursery:
        await nursery.start(client_pool.run)
        askers.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await join()
    assert [str(error) for error in errors] == [
        "the server is stopping",
        "no request is sent while the server starts or stops",
    ]


def test_the_ttl_cache_is_bounded_and_expires() -> None:
    now = 0.0
    cached: TtlCache[int] = TtlCache(2, lambda: now)
    for number in range(3):
        cached.put(number, number, 10)
    assert [cached.get(number) for number in range(3)] == [None, 1, 2]
    cached.get(1)
    cached.put(3, 3, 5)
    assert [cached.get(number) for number in (1, 2, 3)] == [1, None, 3]
    now = 5.0
    assert [cached.get(number) for number in (1, 3)] == [1, None]
    cached.put(1, 7, 0)
    assert cached.get(1) is None
    assert len(cached) == 0
