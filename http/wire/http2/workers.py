"""The tasks that run the requests of one HTTP/2 connection while its reader reads.

A task that has finished a request waits for the next one: that takes a third of the time of a new task. Its cancel
scope, used for all its requests, ends the requests whose deadline has passed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio


class Job(Protocol):
    async def work(self, scope: trio.CancelScope) -> None:
        """Do the work. ``scope``: the scope around it, which may be cancelled."""


class Workers:
    def __init__(self, start_task: Callable[..., None]) -> None:
        self._start_task = start_task
        self._idle: list[_Worker] = []
        self._least = 0  # minimum of idle workers since the last `shed`
        self._closed = False

    def run(self, job: Job) -> None:
        """Run a job in a worker, soon."""
        if self._idle:
            worker = self._idle.pop()
            if len(self._idle) < self._least:
                self._least = len(self._idle)
            worker.wake(job)
        else:
            self._start_task(_Worker(self._rest).run, job)

    def shed(self) -> None:
        """End the workers that were not needed since the last call."""
        for _ in range(min(self._least, len(self._idle))):
            self._idle.pop(0).wake(None)
        self._least = len(self._idle)

    def close(self) -> None:
        """End the idle workers now, and the others after their job."""
        self._closed = True
        while self._idle:
            self._idle.pop().wake(None)

    async def _rest(self, worker: _Worker) -> None:
        """Wait for a job, or for the end."""
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
        with trio.CancelScope() as scope:  # a cancelled scope ends the worker
            while job is not None:
                self._job = None
                await job.work(scope)
                await self._rest(self)
                job = self._job
