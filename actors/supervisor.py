"""A supervisor as in OTP: an ordered list of children, started first to last, stopped last to first.

rest_for_one: when a child crashes, the children started after it (they may depend on it) are stopped in reverse order,
then it and they are started again. After more than ``intensity`` restarts within ``period`` seconds the supervisor
stops all children and raises SupervisorGaveUp to its parent.

    children: log, tail, actors, http      tail crashes
    stop http, stop actors                 (reverse order)
    start tail, start actors, start http

This file does not depend on the children's work. It catches any Exception of a child. So do resource_actors.py and
resource_actor.py for their actors, and the HTTP server for its handlers; loops catch the errors they expect.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import trio

from kubechronicle.actors.errors import SupervisorGaveUp

log = logging.getLogger(__name__)

# Seconds a child may take to start before it counts as crashed.
START_TIMEOUT = 120.0
# Seconds before a restart, doubled for each one within the period.
FIRST_BACKOFF = 0.05
MAX_BACKOFF = 2.0


class Runnable(Protocol):
    """Run a child: call ``task_status.started()`` once it is up, and return only when cancelled."""

    def __call__(self, *, task_status: trio.TaskStatus[Any]) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """A child of a supervisor.

    ``run``: a return without cancellation counts as a crash, like an exception.
    ``stop``: awaited, for at most ``stop_timeout`` seconds, before the child is cancelled.
    """

    name: str
    run: Runnable
    stop: Callable[[], Awaitable[None]] | None = None
    stop_timeout: float = 30.0


@dataclass(slots=True)
class _Running:
    scope: trio.CancelScope
    ended: trio.Event = field(default_factory=trio.Event)
    stopping: bool = False


class Supervisor:
    """One level of the tree. ``run`` is a Runnable, so supervisors nest."""

    def __init__(self, name: str, children: Sequence[ChildSpec], *, intensity: int = 8, period: float = 60.0) -> None:
        self.name = name
        self._children = tuple(children)
        self._running: list[_Running] = []
        self._intensity = intensity
        self._restarts: deque[float] = deque()
        self._period = period
        self._crashes: deque[tuple[int, BaseException | None]] = deque()
        self._crash_or_stop = trio.Event()
        self._stop_requested = False
        self.restarts_total = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start all children and keep them running until ``request_stop``, then stop them in reverse order."""
        async with trio.open_nursery() as nursery:
            try:
                await self._start_from(0, nursery)
                task_status.started()
                while not self._stop_requested:
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
        log.error("%s: %s crashed, restarting it and the children after it", self.name, spec.name, exc_info=error)
        now = trio.current_time()
        self._restarts.append(now)
        while self._restarts and self._restarts[0] < now - self._period:
            self._restarts.popleft()
        if len(self._restarts) > self._intensity:
            raise SupervisorGaveUp(self.name, spec.name, len(self._restarts), self._period) from error
        self.restarts_total += 1
        await self._stop_from(position)
        await trio.sleep(min(MAX_BACKOFF, FIRST_BACKOFF * 2 ** (len(self._restarts) - 1)))
        await self._start_from(position, nursery)

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


class _Started:
    """A task_status that may be reported twice: by the child, and by the supervisor after the child has ended."""

    def __init__(self, inner: trio.TaskStatus[None]) -> None:
        self._inner = inner
        self._reported = False

    def started(self, value: Any = None) -> None:
        if not self._reported:
            self._reported = True
            self._inner.started()
