"""Supervision after OTP: an ordered list of children, started first to last, stopped last to first.

rest_for_one: when a child dies, those started after it (they may depend on it) are stopped in reverse order, then it
and they are started again. More than ``intensity`` restarts within ``period`` seconds is more than a restart can
mend: the supervisor stops everything and raises SupervisorGaveUp, for its own parent to act upon.

    children: log, tail, actors, http      tail dies
    stop http, stop actors                 (reverse order)
    start tail, start actors, start http

This file knows nothing of what the children do. It is, with the HTTP edge, the one place that catches Exception.
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

# How long a child may take to come up before that counts as a failure of its own.
START_TIMEOUT = 120.0
# Restarts wait this long, doubling per restart within the period, so that a fault that lasts is not hammered.
FIRST_BACKOFF = 0.05
MAX_BACKOFF = 2.0


class Runnable(Protocol):
    """``run`` reports ``task_status.started()`` once the child is up, and returns only when cancelled."""

    def __call__(self, *, task_status: trio.TaskStatus[Any]) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """A child: its name and how to run it. A child that returns by itself has failed, as one that raises.

    ``stop``, if given, is awaited (bounded by ``stop_timeout`` seconds) before the child is cancelled.
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
    """One level of the tree. ``run`` is itself Runnable, so that supervisors nest."""

    def __init__(self, name: str, children: Sequence[ChildSpec], *, intensity: int = 8, period: float = 60.0) -> None:
        self.name = name
        self._children = tuple(children)
        self._running: list[_Running] = []
        self._intensity = intensity
        self._restarts: deque[float] = deque()
        self._period = period
        self._deaths: deque[tuple[int, BaseException | None]] = deque()
        self._death_or_stop = trio.Event()
        self._stop_requested = False
        self.restarts_total = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start all children, keep them running until ``request_stop``; stop them in reverse order."""
        async with trio.open_nursery() as nursery:
            try:
                await self._start_from(0, nursery)
                task_status.started()
                while not self._stop_requested:
                    await self._death_or_stop.wait()
                    self._death_or_stop = trio.Event()
                    while self._deaths and not self._stop_requested:
                        await self._handle_death(*self._deaths.popleft(), nursery)
            finally:
                # Reached by request_stop, by giving up and by cancellation alike; in the last case everything below
                # is cancelled already and stopping only collects it.
                await self._stop_from(0)

    def request_stop(self) -> None:
        """Make ``run`` stop its children, last to first, and return."""
        self._stop_requested = True
        self._death_or_stop.set()

    async def _start_from(self, index: int, nursery: trio.Nursery) -> None:
        for position in range(index, len(self._children)):
            running = _Running(trio.CancelScope())
            self._running.append(running)
            with trio.move_on_after(START_TIMEOUT) as patience:
                await nursery.start(self._run_child, position, running)
            if patience.cancelled_caught:
                self._died(position, TimeoutError(f"not up within {START_TIMEOUT:g} s"))
                return
            if running.ended.is_set():
                return  # it died while starting; its death is queued

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
                self._died(position, error)
            started.once()

    def _died(self, position: int, error: BaseException | None) -> None:
        self._deaths.append((position, error))
        self._death_or_stop.set()

    async def _handle_death(self, position: int, error: BaseException | None, nursery: trio.Nursery) -> None:
        if position >= len(self._running) or not self._running[position].ended.is_set():
            return  # already restarted together with an earlier child
        spec = self._children[position]
        log.error("%s: %s died, restarting it and what depends on it", self.name, spec.name, exc_info=error)
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
    """A task_status that may be told twice: by the child, or by us when it died before it was up."""

    def __init__(self, inner: trio.TaskStatus[None]) -> None:
        self._inner = inner
        self._told = False

    def started(self, value: Any = None) -> None:
        self.once()

    def once(self) -> None:
        if not self._told:
            self._told = True
            self._inner.started()
