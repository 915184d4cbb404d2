"""The whole log on Postgres: tail, views and appender of two replicas on one database."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from kubechronicle.eventlog.records import Key, Operation
from kubechronicle.eventlog.testing import Stack, delete, open_stack, put, transaction

Opener = Callable[[], Awaitable[Any]]


async def write(stack: Stack, writer: int, turns: int) -> None:
    """Create, change twice and delete every third object."""
    for turn in range(turns):
        key = Key("pods", f"ns{turn % 3}", f"w{writer}-{turn}")
        deadline = trio.current_time() + 20
        revision = 0
        for _ in range(3):
            one = transaction(put(key, expected=revision))
            (record,) = await stack.appender.append(one, deadline=deadline)
            revision = record.revision
        if turn % 3 == 0:
            await stack.appender.append(transaction(delete(key, expected=revision)), deadline=deadline)


def contents(stack: Stack) -> list[tuple[str, str, int, bytes]]:
    return [
        (entry.key.namespace, entry.key.name, entry.revision, entry.json) for entry in stack.views["pods"].entries()
    ]


async def test_the_views_of_two_replicas_are_equal(replicas: Opener) -> None:
    with trio.fail_after(60):
        async with open_stack(await replicas()) as ours, open_stack(await replicas()) as theirs:
            async with trio.open_nursery() as nursery:
                for writer in range(4):
                    nursery.start_soon(write, (ours, theirs)[writer % 2], writer, 12)
            head = (await ours.log.head()).revision
            assert head == 4 * (12 * 3 + 4)
            for stack in (ours, theirs):
                assert await stack.reads.wait() == head
            assert contents(ours) == contents(theirs)
            assert len(contents(ours)) == 4 * 8
            await assert_history_equals_the_views(ours, head)


async def assert_history_equals_the_views(stack: Stack, head: int) -> None:
    current: dict[Key, int] = {}
    for record in await stack.log.read(after=0, limit=head):
        assert current.get(record.key, 0) == record.previous_revision
        current.pop(record.key, None)
        if record.operation is not Operation.DELETE:
            current[record.key] = record.revision
    assert sorted(current.values()) == sorted(entry[2] for entry in contents(stack))


async def test_a_write_of_another_replica_is_seen_by_notification_and_not_by_polling(replicas: Opener) -> None:
    """The poll alone would take half a second on average."""
    delays: list[float] = []
    async with open_stack(await replicas()) as ours, open_stack(await replicas()) as theirs:
        for number in range(30):
            key = Key("pods", "ns", f"n{number}")
            await theirs.appender.append(transaction(put(key, expected=0)), deadline=trio.current_time() + 10)
            written = time.perf_counter()
            while ours.views["pods"].get("ns", key.name) is None:
                await trio.lowlevel.checkpoint()
            delays.append(time.perf_counter() - written)
    assert sorted(delays)[len(delays) // 2] < 0.25
