"""Turns of sessions: how much of their copying is done in one pass of the event loop, so that requests need not wait.

Trio runs all tasks that are ready in one pass. After a busy moment of the machine, hundreds of sessions can be ready at
once, and a request that comes meanwhile waits for all of them: passes of 20 to 50 ms were seen. So a session that has
something to read takes a turn:

    it goes on at once     while the pass is shorter than BUDGET, or has had fewer than LEAST turns
    else it waits          and goes on in one of the next passes, in the order of coming

LEAST keeps sessions going beside a load of long requests. A large read counts for several turns.

A read of 256 KB can hold 30,000 frames. So a session counts its frames on the budget of the client's connection
(wire/work.py), whoever sent them. When that is used up, it rests, and goes on with another turn.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import Final

import trio

from kubechronicle.http.wire.work import Work

BUDGET: Final = 0.0005
"""Seconds from the begin of a pass after which no further turn begins."""
LEAST: Final = 4
"""Turns in each pass, whatever else it does: a quarter of a millisecond for lines of text."""
TURN_BYTES: Final = 32 * 1024
"""Bytes that count for another turn."""
AWAKE: Final = 8
"""Waiting sessions that look for a turn in each pass. The others sleep."""


class StreamTurns(trio.abc.Instrument):
    """The turns of one event loop. `of_this_loop` returns it.

    Invariant: while sessions sleep, AWAKE others look for a turn in the next pass. Each wakes one as it goes on.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._done = 0
        self._awake = 0
        self._asleep: deque[trio.lowlevel.Task] = deque()

    def after_io_wait(self, timeout: float) -> None:
        """Begin a pass (trio.abc.Instrument)."""
        self._until = perf_counter() + BUDGET
        self._done = 0

    async def take(self) -> None:
        """Return when a session may go on. Not a checkpoint if it may at once."""
        if not self._awake and self._goes_on():
            return
        if self._awake < AWAKE:
            self._awake += 1
        else:
            await self._sleep()
        try:
            await trio.lowlevel.checkpoint()
            while not self._goes_on():
                await trio.lowlevel.checkpoint()
        finally:
            self._awake -= 1
            self._wake()

    def note(self, size: int) -> None:
        """Count a read of so many bytes."""
        self._done += size // TURN_BYTES

    def _goes_on(self) -> bool:
        if self._done >= LEAST and perf_counter() >= self._until:
            return False
        self._done += 1
        return True

    async def _sleep(self) -> None:
        """Sleep until another session has gone on. It counts as awake from then on."""
        task = trio.lowlevel.current_task()
        self._asleep.append(task)

        def abort(_: object) -> trio.lowlevel.Abort:
            self._asleep.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake(self) -> None:
        if self._asleep and self._awake < AWAKE:
            self._awake += 1
            trio.lowlevel.reschedule(self._asleep.popleft())


_TURNS: Final = trio.lowlevel.RunVar[StreamTurns]("turns of sessions")


def of_this_loop() -> StreamTurns:
    """Return the turns of the event loop that runs."""
    try:
        return _TURNS.get()
    except LookupError:
        turns = StreamTurns()
        trio.lowlevel.add_instrument(turns)
        _TURNS.set(turns)
        return turns


def work_of(client: object) -> Work:
    """Return the budget of a client's connection; a new one for a stream that was not taken over."""
    work = getattr(client, "work", None)
    return work if isinstance(work, Work) else Work()


async def rest(work: Work) -> None:
    """Return when a session that has used its budget up may go on."""
    await work.rest()
    await of_this_loop().take()
