"""Threads that users share in turn."""

from __future__ import annotations

import threading

import pytest
import trio

from kubechronicle.actors.fair_share import SERVED, FairThreads


async def test_a_user_waits_for_one_call_of_another() -> None:
    threads, order, go = FairThreads(1), list[str](), threading.Event()

    def called(name: str) -> None:
        go.wait(10)
        order.append(name)

    async def request(user: str, name: str) -> None:
        SERVED.set(user)  # of this task alone
        await threads.run(called, name)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for user, name in (("alice", "a1"), ("alice", "a2"), ("alice", "a3"), ("bob", "b1")):
                nursery.start_soon(request, user, name)
                await trio.testing.wait_all_tasks_blocked()
            go.set()
    assert order == ["a1", "b1", "a2", "a3"]
    assert not threads.share.busy


async def test_an_error_gives_the_thread_back() -> None:
    threads = FairThreads(1)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 / 0)
    assert not threads.share.busy


async def test_an_abandoned_call_keeps_its_thread() -> None:
    threads, go, ended = FairThreads(1), threading.Event(), list[str]()

    def slow() -> None:
        go.wait(10)
        ended.append("slow")

    with trio.fail_after(30):
        with trio.move_on_after(0.01):
            await threads.run(slow, abandons=True)
        assert ended == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.run, lambda: ended.append("next"))
            await trio.testing.wait_all_tasks_blocked()
            go.set()
    assert ended == ["slow", "next"]
