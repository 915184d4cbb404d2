"""Asking again: k8s.io/apiserver/pkg/util/webhook's WithExponentialBackoff, and client-go's heed of Retry-After.

500, 501, 502, 504, 429    asked again, as is whatever carries Retry-After
a broken connection        asked again
refused, timed out, 4xx    the last word
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import trio

from kubechronicle.http.outgoing.client import Answer, AskError, Client

T = TypeVar("T")

TOO_MANY, UNAVAILABLE, GATEWAY_TIMEOUT = 429, 503, 504


@dataclass(frozen=True, slots=True)
class Backoff:
    """Asks ``steps`` times in all and waits in between: ``initial`` seconds, ``factor`` times as long each time, and up
    to ``jitter`` times that more."""

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
"""Told of each question by itself: what came of it (one of the four words), and the seconds it took."""


def unobserved(result: str, seconds: float) -> None:
    """For who does not want to know."""


async def ask_patiently(
    client: Client,
    body: bytes,
    read: Callable[[Answer], T],
    *,
    backoff: Backoff = BACKOFF,
    observe: Observe = unobserved,
) -> T:
    """POST the body, and what ``read`` makes of the answer; AskError if it raises that. Asked again while that is a
    passing failure, within the client's time-out in all."""
    deadline = trio.current_time() + client.timeout
    waits = backoff.waits()
    while True:
        started = trio.current_time()
        answer: Answer | None = None
        result = CANCELED
        try:
            answer = await client.ask(body=body, timeout=max(deadline - started, 0))
            found = read(answer)
            result = SUCCESS
            return found
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
    """Seconds until the question is worth asking again; None: it is not."""
    if answer is None:
        return next(waits, None) if error.transient else None
    asked_to_wait = retry_after(answer.headers)
    if not (asked_to_wait or _is_passing(answer.status)):
        return None
    wait = next(waits, None)
    return max(wait, asked_to_wait) if wait is not None else None


def retry_after(headers: Mapping[str, str]) -> int:
    """Seconds, 0 if the answer says none; client-go reads no dates either."""
    text = headers.get("retry-after", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _is_passing(status: int) -> bool:
    return status == TOO_MANY or (status >= 500 and status != UNAVAILABLE)
