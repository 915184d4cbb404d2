"""Tail, appender, cursors and consistent reads of two replicas on one real Postgres."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from kubechronicle.eventlog.errors import RejectedError
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.testing import Stack, open_stack, put, transaction

LONG = 60.0  # seconds; longer than any step takes, even on a loaded machine
WRITERS, ROUNDS = 8, 25


async def test_two_replicas_agree(replicas: Callable[[], Awaitable[RevisionLog]]) -> None:
    """Writers on both replicas increment counters in the same objects, with the revision that their view shows.

    A watcher on each replica sees every revision once, in order; both views equal a load from the log.
    """
    with trio.fail_after(60):
        async with open_stack(await replicas()) as one, open_stack(await replicas()) as two:
            seen: dict[int, list[int]] = {0: [], 1: []}
            acknowledged: list[int] = []

            async def watch(number: int, stack: Stack) -> None:
                cursor = stack.views.watch("pods", after=0)
                while True:
                    seen[number] += [event.revision for event in await cursor.next_batch()]

            async def write(stack: Stack, name: str) -> None:
                for _ in range(ROUNDS):
                    entry = stack.views["pods"].get("a", name)
                    change = put(Key("pods", "a", name), expected=entry.revision if entry else 0)
                    try:
                        (record,) = await stack.appender.append(
                            transaction(change), deadline=trio.current_time() + LONG
                        )
                        acknowledged.append(record.revision)
                    except RejectedError as error:
                        current, actual = stack.views["pods"].get("a", name), error.rejected.actual
                        assert current is not None
                        assert current.revision >= actual  # the view already shows the conflicting change

            for number, stack in enumerate((one, two)):
                stack.nursery.start_soon(watch, number, stack)
            async with trio.open_nursery() as writers:
                for number in range(WRITERS):
                    writers.start_soon(write, (one, two)[number % 2], f"x{number // 4}")

            head = len(acknowledged)
            assert sorted(acknowledged) == list(range(1, head + 1))
            assert await one.reads.wait() == await two.reads.wait() == head
            async with open_stack(await replicas()) as three:
                for stack in (one, two, three):
                    listed = [(each.key, each.json, each.version) for each in stack.views["pods"].entries()]
                    assert listed == [(each.key, each.json, each.version) for each in one.views["pods"].entries()]
                cursor, replayed = three.views.watch("pods", after=0), list[int]()
                while len(replayed) < head:  # from the log: memory of the third replica has none of it
                    replayed += [event.revision for event in await cursor.next_batch(trio.current_time() + LONG)]
            assert seen[0] == seen[1] == replayed == list(range(1, head + 1))
