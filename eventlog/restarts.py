"""Tasks of a server that are started again after a failure, and the account of their failures.

    failure ──► counted, logged ──► pause: 0.05 s, twice as long each time, LONGEST at most ──► started again
                                                    CALM seconds without another failure ──► the first pause again

Nothing here ends the server: while a task fails, its work is not done, and `TaskFailures.failing` names it for /readyz.
The supervisor (actors/supervisor.py) and tasks within a child of it use the same account.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, Protocol

import trio

logger = logging.getLogger(__name__)

FIRST: Final = 0.05
LONGEST: Final = 30.0
"""Seconds before a restart, at first and at most."""
CALM: Final = 10.0
"""Seconds that a task must run before it counts as mended; or as long as its last pause, if that is longer."""
LOG_INTERVAL: Final = 60.0
"""Seconds between two log lines of a task that fails again in the same way."""


class Runnable(Protocol):
    """Run a task: call ``task_status.started()`` once it is up, and return only when cancelled."""

    def __call__(self, *, task_status: trio.TaskStatus[Any]) -> Awaitable[None]: ...


@dataclass(slots=True)
class Failing:
    """A task that fails now. ``failures``: since it was last calm. ``essential``: the server is not ready without it.

    ``restarted``: when it was started again (trio's clock); None: it has not been yet.
    """

    name: str
    essential: bool
    error: str
    since: float
    failures: int = 0
    pause: float = 0.0
    restarted: float | None = None
    _logged: float = 0.0
    _kind: tuple[str, ...] = ()

    def is_calm(self, now: float) -> bool:
        return self.restarted is not None and now - self.restarted > max(CALM, self.pause)

    def __str__(self) -> str:
        return f"{self.name} has failed {self.failures} times, last with {self.error}"


class TaskFailures:
    """The failures of all supervised tasks of a server. ``totals``: by task, 0 for one that has never failed."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self._failing: dict[str, Failing] = {}

    def know(self, name: str) -> None:
        """Add a task to the totals."""
        self.totals.setdefault(name, 0)

    def failed(
        self, name: str, error: BaseException | None, *, essential: bool = False, longest: float = LONGEST
    ) -> float:
        """Count and log a failure (None: the task returned). Return the seconds to wait before it is started again."""
        now = trio.current_time()
        self.totals[name] = self.totals.get(name, 0) + 1
        failing = self._failing.get(name)
        if failing is None or failing.is_calm(now):
            failing = self._failing[name] = Failing(name, essential, "", now)
        failing.failures += 1
        failing.restarted = None
        failing.error = _describe(error)
        failing.pause = min(longest, FIRST * 2 ** min(failing.failures - 1, 30))
        self._log(failing, error, now)
        return failing.pause

    def _log(self, failing: Failing, error: BaseException | None, now: float) -> None:
        kind = _kind(error)
        fields = {"task": failing.name, "failures": failing.failures, "pause": failing.pause, "err": failing.error}
        if kind != failing._kind:
            logger.error("A task failed and is started again", exc_info=error, extra=fields)
        elif now - failing._logged >= LOG_INTERVAL:
            logger.error("A task still fails and is started again", extra=fields)
        else:
            return
        failing._kind, failing._logged = kind, now

    def restarted(self, name: str) -> None:
        """Note that the task is up again."""
        failing = self._failing.get(name)
        if failing is not None and failing.restarted is None:
            failing.restarted = trio.current_time()

    def forget(self, name: str) -> None:
        """Remove a task that is not needed any more from those that fail."""
        self._failing.pop(name, None)

    def failing(self) -> list[Failing]:
        """Return the tasks that fail now, or have failed a moment ago."""
        now = trio.current_time()
        for name in [name for name, each in self._failing.items() if each.is_calm(now)]:
            del self._failing[name]
        return list(self._failing.values())


def start_apart(nursery: trio.Nursery, function: Callable[..., Awaitable[object]], *arguments: object) -> None:
    """Start a task that outlives the request which needs it first, and knows nothing of it.

    A task keeps the context variables of the one that starts it: the answers of a request's webhooks, for example.
    """
    Context().run(nursery.start_soon, function, *arguments)


async def begin_apart(nursery: trio.Nursery, function: Callable[..., Awaitable[object]], *arguments: object) -> Any:
    """Start such a task, and return what it reports to ``task_status``, as ``nursery.start`` does."""
    return await _Apart(nursery.start(function, *arguments))


class _Apart:
    """An awaitable that takes its steps in an empty context."""

    def __init__(self, work: Awaitable[Any]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        context, steps = Context(), self._work.__await__()
        step, value = steps.send, None
        while True:
            try:
                trap = context.run(step, value)
            except StopIteration as stop:
                return stop.value
            try:
                step, value = steps.send, (yield trap)
            except BaseException as error:
                step, value = steps.throw, error


async def keep_running(
    name: str,
    run: Runnable,
    failures: TaskFailures,
    *,
    essential: bool = False,
    longest: float = LONGEST,
    up: trio.Event | None = None,
    returns: bool = False,
    passed: tuple[type[Exception], ...] = (),
) -> None:
    """Run a task until cancelled, again after each failure.

    ``up``: set once it has started, or failed to.
    ``returns``: the task may return; then this does.
    ``passed``: errors by which the task ends the server on purpose.
    """
    failures.know(name)
    up = up if up is not None else trio.Event()
    while True:
        error: BaseException | None = None
        try:
            await run(task_status=_Up(name, failures, up))
        except Exception as caught:
            if any(isinstance(leaf, passed) for leaf in leaves(caught)):
                raise
            error = caught
        if error is None and returns:
            return
        up.set()
        await trio.sleep(failures.failed(name, error, essential=essential, longest=longest))


def plain(function: Callable[[], Awaitable[object]]) -> Runnable:
    """Return a task that is up at once as a Runnable."""

    async def run(*, task_status: trio.TaskStatus[Any]) -> None:
        task_status.started()
        await function()

    return run


class _Up:
    """The task_status of a task that may be started several times."""

    def __init__(self, name: str, failures: TaskFailures, up: trio.Event) -> None:
        self._name, self._failures, self._up = name, failures, up

    def started(self, value: Any = None) -> None:
        self._up.set()
        self._failures.restarted(self._name)


def leaves(error: BaseException | None) -> list[BaseException]:
    """Return the errors of a group, or the error alone."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [error] if error is not None else []


def _describe(error: BaseException | None) -> str:
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error)) or "a return"


def _kind(error: BaseException | None) -> tuple[str, ...]:
    """Return the types and places of an error's parts: those of the same kind have one traceback in the log."""
    places = ["returned"] if error is None else []
    for leaf in leaves(error):
        trace = leaf.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
        places.append(f"{type(leaf).__qualname__} {where}")
    return tuple(places)


# -- backoff -----------------------------------------------------------------------------------------------------------
#
# Delays between attempts to reach the database.


FIRST_DELAY = 0.05  # seconds: a failover within one machine or a restarted pooler is over in less
LONGEST_DELAY = 2.0  # seconds: the longest that a server takes to notice that the database is back


def delays(first: float = FIRST_DELAY, longest: float = LONGEST_DELAY) -> Iterator[float]:
    """Yield delays without end, doubling from ``first`` to ``longest`` seconds."""
    delay = first
    while True:
        yield delay
        delay = min(2 * delay, longest)
