"""Retries shared by the control loops: the errors worth another attempt, and passes that are repeated.

Admission may reject the writes of a loop, as it may reject kube-apiserver's own: a webhook on everything whose server
is gone, a policy, a quota. The administrator repairs that through the API. So a loop reports started after its first
attempt, whatever comes of it, and goes on trying. The checks of readiness are in ops/server/own_objects.py.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NoReturn

import trio

from kubechronicle.actors.errors import ActorError
from kubechronicle.api.errors.status import StatusError
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.restarts import delays

log = logging.getLogger(__name__)

RETRIED: Final = (StatusError, LogError, ActorError)
"""Errors of reads and writes after which a loop tries again. Any other is a bug, and left to the supervisor."""

# Seconds before a pass that failed is repeated, doubling. kube-apiserver's hooks poll every second.
FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 30.0
# Seconds between two log lines about the same error of one pass.
LOG_INTERVAL: Final = 300.0

Pass = Callable[[], Awaitable[object]]
"""One look at all objects of a loop."""

OnError = Callable[[Exception], None]


class RetryComplaints:
    """Log lines about passes that fail: one for each new error, repeated after LOG_INTERVAL, and one when it is over.

    ``subject``: the objects that the pass keeps.
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._error = ""
        self._logged = 0.0

    def failed(self, error: Exception) -> None:
        now, text = trio.current_time(), str(error)
        if text != self._error or now - self._logged >= LOG_INTERVAL:
            log.warning("%s could not be reconciled, trying again: %s", self._subject, text)
            self._error, self._logged = text, now

    def succeeded(self) -> None:
        if self._error:
            log.info("%s are reconciled again", self._subject)
            self._error = ""


async def first_pass(
    reconcile: Pass,
    *,
    subject: str,
    on_error: OnError | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Repeat the pass until it succeeds, with growing pauses. Report started after the first attempt.

    ``subject``: the objects, for log lines.
    ``on_error``: called with the error of every failed attempt.
    """
    complaints = RetryComplaints(subject)
    for pause in delays(FIRST_DELAY, LONGEST_DELAY):
        if await _attempt(reconcile, complaints, on_error):
            break
        task_status.started()
        task_status = trio.TASK_STATUS_IGNORED
        await trio.sleep(pause)
    task_status.started()


async def repeat_pass(
    reconcile: Pass,
    *,
    subject: str,
    interval: float,
    on_error: OnError | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> NoReturn:
    """As ``first_pass``, then run one pass every ``interval`` seconds until cancelled, failed ones sooner again."""
    await first_pass(reconcile, subject=subject, on_error=on_error, task_status=task_status)
    complaints = RetryComplaints(subject)
    retries = delays(FIRST_DELAY, LONGEST_DELAY)
    pause = interval
    while True:
        await trio.sleep(pause)
        if await _attempt(reconcile, complaints, on_error):
            pause, retries = interval, delays(FIRST_DELAY, LONGEST_DELAY)
        else:
            pause = min(interval, next(retries))


async def _attempt(reconcile: Pass, complaints: RetryComplaints, on_error: OnError | None) -> bool:
    try:
        await reconcile()
    except RETRIED as error:
        if on_error is not None:
            on_error(error)
        complaints.failed(error)
        return False
    complaints.succeeded()
    return True


async def each(steps: Iterable[Pass], *, at_once: int = 1) -> None:
    """Take all steps, also after some have failed. Raise the last error of RETRIED.

    So that one object which admission rejects does not keep the others from being made.
    """
    errors: list[Exception] = []

    async def attempt(step: Pass) -> None:
        try:
            await step()
        except RETRIED as error:
            errors.append(error)

    taken = list(steps)
    for start in range(0, len(taken), at_once):
        async with trio.open_nursery() as nursery:
            for step in taken[start : start + at_once]:
                nursery.start_soon(attempt, step)
    if errors:
        raise errors[-1]
