"""The tasks that run one HTTP/2 connection's requests while its reader goes on reading.

A task that has finished a request waits for the next instead of ending: to begin one takes a third of a new task's
time, and one scope, kept from request to request, ends those whose time is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio


class Job(Protocol):
    async def work(self, scope: trio.CancelScope) -> None:
        """The scope is what it runs in: it may be cancelled."""


class Workers:
    def __init__(self, start_task: Callable[..., None]) -> None:
        self._start_task = start_task
        self._idle: list[_Worker] = []
        self._least = 0  # idle at any time since the last look
        self._closed = False

    def run(self, job: Job) -> None:
        """In a task, soon."""
        if self._idle:
            worker = self._idle.pop()
            if len(self._idle) < self._least:
                self._least = len(self._idle)
            worker.wake(job)
        else:
            self._start_task(_Worker(self._rest).run, job)

    def shed(self) -> None:
        """End those that have had nothing to do since this was called last."""
        for _ in range(min(self._least, len(self._idle))):
            self._idle.pop(0).wake(None)
        self._least = len(self._idle)

    def close(self) -> None:
        """End those that wait, and the others after what they run."""
        self._closed = True
        while self._idle:
            self._idle.pop().wake(None)

    async def _rest(self, worker: _Worker) -> None:
        """Until there is something to do, or to end."""
        if self._closed:
            return
        self._idle.append(worker)

        def leave(_: Any) -> trio.lowlevel.Abort:
            self._idle.remove(worker)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)


class _Worker:
    def __init__(self, rest: Callable[[_Worker], Awaitable[None]]) -> None:
        self._rest = rest
        self._job: Job | None = None
        self._task: trio.lowlevel.Task

    def wake(self, job: Job | None) -> None:
        self._job = job
        trio.lowlevel.reschedule(self._task)

    async def run(self, job: Job | None) -> None:
        self._task = trio.lowlevel.current_task()
        with trio.CancelScope() as scope:  # once cancelled, it cannot be used for others
            while job is not None:
                self._job = None
                await job.work(scope)
                await self._rest(self)
                job = self._job
