"""Deadlines of connections: one timer for all."""

from __future__ import annotations

import trio

from kubechronicle.http.outgoing.keep_alive import Deadlines


class Connection:
    def __init__(self) -> None:
        self.closed_at = 0.0

    def close_nowait(self) -> None:
        self.closed_at = trio.current_time()


async def test_each_connection_is_closed_at_its_deadline(autojump_clock: object, nursery: trio.Nursery) -> None:
    deadlines, began = Deadlines(), trio.current_time()
    nursery.start_soon(deadlines.run)
    await trio.testing.wait_all_tasks_blocked()
    seconds = (30, 10, 20, 20, 5)  # also earlier ones than those before
    connections = [Connection() for _ in seconds]
    for connection, after in zip(connections, seconds, strict=True):
        deadlines.begin(connection, began + after)
    assert deadlines.end(connections[2])
    await trio.sleep(60)
    assert [round(each.closed_at - began) for each in connections] == [30, 10, round(-began), 20, 5]
    assert not deadlines.end(connections[0])
    assert len(deadlines) == 0


async def test_a_deadline_that_comes_while_others_end(autojump_clock: object, nursery: trio.Nursery) -> None:
    deadlines = Deadlines()
    later = Connection()

    class Opening(Connection):
        def close_nowait(self) -> None:
            super().close_nowait()
            deadlines.begin(later, trio.current_time() + 1)

    nursery.start_soon(deadlines.run)
    first = Opening()
    deadlines.begin(first, trio.current_time() + 10)
    await trio.sleep(60)
    assert round(later.closed_at - first.closed_at) == 1


async def test_it_runs_again_after_a_restart(autojump_clock: object) -> None:
    """The supervisor restarts its parent after a crash; deadlines of before still count."""
    deadlines, connection, began = Deadlines(), Connection(), trio.current_time()
    deadlines.begin(connection, began + 5)
    for _ in range(2):
        with trio.move_on_after(1):
            await deadlines.run()
    assert not connection.closed_at
    with trio.move_on_after(10):
        await deadlines.run()
    assert round(connection.closed_at - began) == 5
