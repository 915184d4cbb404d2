"""Retries with exponential backoff: k8s.io/apiserver/pkg/util/webhook's WithExponentialBackoff, and client-go's use of
Retry-After.

500, 501, 502, 504, 429        retried
any answer with Retry-After    retried
a broken connection            retried
refused, timed out, 4xx        final
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import trio

from kubechronicle.http.outgoing.client import Answer, AskError, OutgoingClient

T = TypeVar("T")

TOO_MANY, UNAVAILABLE, GATEWAY_TIMEOUT = 429, 503, 504


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits between attempts.

    ``initial``: seconds of the first wait
    ``factor``: ratio of each wait to the one before
    ``jitter``: random addition, up to this part of the wait
    ``steps``: attempts in all
    """

    initial: float = 0.5
    factor: float = 1.5
    jitter: float = 0.2
    steps: int = 5

    def waits(self) -> Iterator[float]:
        wait = self.initial
        for _ in range(self.steps - 1):
            yield wait * (1 + random.random() * self.jitter)
            wait *= self.factor


BACKOFF: Final = Backoff()

SUCCESS, ERROR, TIMEOUT, CANCELED = "success", "error", "timeout", "canceled"

Observe = Callable[[str, float], None]
"""Called after each attempt with its result (one of the four words) and its seconds."""


def unobserved(result: str, seconds: float) -> None:
    """Ignore the result of an attempt."""


async def ask_patiently(
    client: OutgoingClient,
    body: bytes,
    read: Callable[[Answer], T],
    *,
    backoff: Backoff = BACKOFF,
    observe: Observe = unobserved,
) -> T:
    """POST the body and return ``read(answer)``. Transient failures are retried within the client's timeout.

    ``read`` may raise AskError. Raises the last AskError.
    """
    deadline = trio.current_time() + client.timeout
    waits = backoff.waits()
    while True:
        started = trio.current_time()
        answer: Answer | None = None
        result = CANCELED
        try:
            answer = await client.ask(body=body, timeout=max(deadline - started, 0))
            value = read(answer)
            result = SUCCESS
            return value
        except AskError as error:
            late = error.timed_out or (answer is not None and answer.status == GATEWAY_TIMEOUT)
            result = TIMEOUT if late else ERROR
            wait = _wait(error, answer, waits)
            if wait is None or trio.current_time() + wait >= deadline:
                raise
        finally:
            observe(result, trio.current_time() - started)
        await trio.sleep(wait)


def _wait(error: AskError, answer: Answer | None, waits: Iterator[float]) -> float | None:
    """Return the seconds to wait before a retry, None for no retry."""
    if answer is None:
        return next(waits, None) if error.transient else None
    required = retry_after(answer.headers)
    if not (required or _is_transient(answer.status)):
        return None
    wait = next(waits, None)
    return max(wait, required) if wait is not None else None


def retry_after(headers: Mapping[str, str]) -> int:
    """Return the seconds of Retry-After, 0 without one. Dates are ignored, as in client-go."""
    text = headers.get("retry-after", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _is_transient(status: int) -> bool:
    return status == TOO_MANY or (status >= 500 and status != UNAVAILABLE)


# -- rate limited log --------------------------------------------------------------------------------------------------
#
# A log for the failures of another server: at once, then one line each INTERVAL seconds.
#
# Clients can cause failures with every request, and must not fill the log.


INTERVAL: Final = 10.0


class RateLimitedLog:
    def __init__(self, log: logging.Logger, message: str) -> None:
        self._log = log
        self._message = message
        self._next = 0.0
        self._suppressed = 0

    def error(self, why: str, **extra: str) -> None:
        """Log the message with ``why``, which is one line without a credential. Count it if it comes too soon."""
        now = time.monotonic()
        if now < self._next:
            self._suppressed += 1
            return
        self._next = now + INTERVAL
        suppressed, self._suppressed = self._suppressed, 0
        more = {"suppressed": suppressed} if suppressed else {}
        self._log.error(self._message, extra={"err": why, **extra, **more})
