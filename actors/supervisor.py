"""Supervision as in OTP: ordered lists of children, which are started again when they fail.

`Supervisor` (rest_for_one): when a child crashes, the children started after it (they may depend on it) are stopped in
reverse order, then it and they are started again.

    children: tail, appender, actors       tail crashes
    stop actors, stop appender             (reverse order)
    start tail, start appender, start actors

It stops all children and raises SupervisorGaveUp after more than ``intensity`` restarts within ``period`` seconds. With
``lasting``, that is so only until all children have run once, and for an error that is ``fatal`` for the child.
Otherwise the pauses grow (eventlog/restarts.py), and the server goes on without the child's work.

`Tasks` (one_for_one): each child is started again alone, and never given up.

This file does not depend on the children's work. It catches any Exception of a child. So do restarts.py for tasks
within a child, resource_actor.py, and the HTTP server for its handlers; loops catch the errors they expect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

from kubechronicle.actors.errors import SupervisorGaveUp
from kubechronicle.eventlog.restarts import LONGEST, Runnable, TaskFailures, keep_running, leaves

# Seconds a child may take to start before it counts as crashed.
START_TIMEOUT = 120.0
# The longest pause before a restart that counts: the supervisor gives up after some of them.
MAX_BACKOFF = 2.0
# Seconds that the start of Tasks waits for all its children. Those that are slower start beside what follows.
PATIENCE = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """A child of a supervisor.

    ``run``: a return without cancellation counts as a crash, like an exception.
    ``stop``: awaited, for at most ``stop_timeout`` seconds, before the child is cancelled.
    ``fatal``: errors after which the child's state is not to be trusted.
    ``essential``: the server is not ready without this child. Those of a Supervisor all are.
    """

    name: str
    run: Runnable
    fatal: tuple[type[Exception], ...] = ()
    essential: bool = False
    stop: Callable[[], Awaitable[None]] | None = None
    stop_timeout: float = 30.0


@dataclass(slots=True)
class _Running:
    scope: trio.CancelScope
    ended: trio.Event = field(default_factory=trio.Event)
    stopping: bool = False


class Supervisor:
    """One level of the tree. ``run`` is a Runnable, so supervisors nest."""

    def __init__(
        self,
        name: str,
        children: Sequence[ChildSpec],
        *,
        intensity: int = 8,
        period: float = 60.0,
        lasting: bool = False,
        failures: TaskFailures | None = None,
    ) -> None:
        self.name = name
        self.failures = failures if failures is not None else TaskFailures()
        self._children = tuple(children)
        self._running: list[_Running] = []
        self._intensity = intensity
        self._restarts: deque[float] = deque()
        self._period = period
        self._lasting = lasting
        self._has_run = False
        self._crashes: deque[tuple[int, BaseException | None]] = deque()
        self._crash_or_stop = trio.Event()
        self._stop_requested = False

    @property
    def restarts_total(self) -> int:
        """The failures of all tasks of this account."""
        return sum(self.failures.totals.values())

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start all children, report started, and keep them running until ``request_stop``. Then stop them in reverse
        order."""
        for spec in self._children:
            self.failures.know(spec.name)
        async with trio.open_nursery() as nursery:
            try:
                await self._start_from(0, nursery)
                while not self._stop_requested:
                    if not self._crashes:
                        self._has_run = True
                        task_status.started()
                        task_status = trio.TASK_STATUS_IGNORED
                        await self._crash_or_stop.wait()
                    self._crash_or_stop = trio.Event()
                    while self._crashes and not self._stop_requested:
                        await self._handle_crash(*self._crashes.popleft(), nursery)
            finally:
                # Also reached by giving up and by cancellation. The latter has cancelled the children already; then
                # this only waits for them.
                await self._stop_from(0)

    def request_stop(self) -> None:
        """Make ``run`` stop its children, last to first, and return."""
        self._stop_requested = True
        self._crash_or_stop.set()

    async def _start_from(self, index: int, nursery: trio.Nursery) -> None:
        for position in range(index, len(self._children)):
            running = _Running(trio.CancelScope())
            self._running.append(running)
            with trio.move_on_after(START_TIMEOUT) as patience:
                await nursery.start(self._run_child, position, running)
            if patience.cancelled_caught:
                self._crashed(position, TimeoutError(f"not up within {START_TIMEOUT:g} s"))
                return
            if running.ended.is_set():
                return  # it crashed while starting, and the crash is queued
            self.failures.restarted(self._children[position].name)

    async def _run_child(self, position: int, running: _Running, *, task_status: trio.TaskStatus[None]) -> None:
        spec = self._children[position]
        error: BaseException | None = None
        started = _Started(task_status)
        try:
            with running.scope:
                await spec.run(task_status=started)
        except Exception as caught:
            error = caught
        finally:
            running.ended.set()
            if not running.stopping and not running.scope.cancel_called:
                self._crashed(position, error)
            started.started()

    def _crashed(self, position: int, error: BaseException | None) -> None:
        self._crashes.append((position, error))
        self._crash_or_stop.set()

    async def _handle_crash(self, position: int, error: BaseException | None, nursery: trio.Nursery) -> None:
        if position >= len(self._running) or not self._running[position].ended.is_set():
            return  # already restarted together with an earlier child
        spec = self._children[position]
        if error is not None and any(isinstance(leaf, SupervisorGaveUp) for leaf in leaves(error)):
            raise error
        is_fatal = any(isinstance(leaf, spec.fatal) for leaf in leaves(error))
        counts = is_fatal or not (self._lasting and self._has_run)
        longest = MAX_BACKOFF if counts else LONGEST
        pause = self.failures.failed(spec.name, error, essential=True, longest=longest)
        if counts and self._restarted_too_often():
            raise SupervisorGaveUp(self.name, spec.name, len(self._restarts), self._period) from error
        await self._stop_from(position)
        await trio.sleep(pause)
        await self._start_from(position, nursery)

    def _restarted_too_often(self) -> bool:
        now = trio.current_time()
        self._restarts.append(now)
        while self._restarts and self._restarts[0] < now - self._period:
            self._restarts.popleft()
        return len(self._restarts) > self._intensity

    async def _stop_from(self, index: int) -> None:
        while len(self._running) > index:
            position = len(self._running) - 1
            running, spec = self._running[position], self._children[position]
            running.stopping = True
            try:
                if spec.stop is not None and not running.ended.is_set():
                    with trio.move_on_after(spec.stop_timeout):
                        await spec.stop()
            finally:
                running.scope.cancel()
                with trio.CancelScope(shield=True):
                    await running.ended.wait()
                self._running.pop()


class Tasks:
    """Children without an order between them. ``run`` is a Runnable."""

    def __init__(self, children: Sequence[ChildSpec], failures: TaskFailures) -> None:
        self._children = tuple(children)
        self._failures = failures

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the children one after the other, report started, and keep each running until cancelled."""
        async with trio.open_nursery() as nursery:
            deadline = trio.current_time() + PATIENCE
            for spec in self._children:
                up = trio.Event()
                keep = partial(keep_running, essential=spec.essential, up=up)
                nursery.start_soon(keep, spec.name, spec.run, self._failures)
                with trio.move_on_at(deadline):
                    await up.wait()
            task_status.started()
            await trio.sleep_forever()


class _Started:
    """A task_status that may be reported twice: by the child, and by the supervisor after the child has ended."""

    def __init__(self, inner: trio.TaskStatus[None]) -> None:
        self._inner = inner
        self._reported = False

    def started(self, value: Any = None) -> None:
        if not self._reported:
            self._reported = True
            self._inner.started()
