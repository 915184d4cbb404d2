"""Retries shared by the control loops: the errors worth another attempt, and passes that are repeated."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.api.errors.status import StatusError
from kubechronicle.eventlog.errors import LogError

log = logging.getLogger(__name__)

RETRIED: Final = (StatusError, LogError, ActorError)
"""Errors of reads and writes after which a loop tries again. Any other is a bug, and left to the supervisor."""

# Attempts at the first pass, and seconds between two of them, before a loop fails to start.
START_ATTEMPTS: Final = 10
START_DELAY: Final = 0.5

Pass = Callable[[], Awaitable[object]]
"""One look at all objects of a loop."""

OnError = Callable[[Exception], None]


async def first_pass(reconcile: Pass, *, on_error: OnError | None = None) -> None:
    """Repeat the pass until it succeeds. Raise the error of the last of START_ATTEMPTS attempts.

    ``on_error``: called with the error of every failed attempt.
    """
    for attempt in range(START_ATTEMPTS):
        try:
            await reconcile()
            return
        except RETRIED as error:
            if on_error is not None:
                on_error(error)
            if attempt == START_ATTEMPTS - 1:
                raise
            await trio.sleep(START_DELAY)


async def repeat_pass(
    reconcile: Pass,
    *,
    subject: str,
    interval: float,
    on_error: OnError | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> NoReturn:
    """Run the first pass, report started, then run one pass every ``interval`` seconds until cancelled.

    ``subject``: the objects, for log lines.
    ``on_error``: called with the error of every failed pass. Only the first pass raises its error.
    """
    await first_pass(reconcile, on_error=on_error)
    task_status.started()
    while True:
        await trio.sleep(interval)
        try:
            await reconcile()
        except RETRIED as error:
            if on_error is not None:
                on_error(error)
            log.warning("%s could not be reconciled, the next attempt is in %g seconds: %s", subject, interval, error)
