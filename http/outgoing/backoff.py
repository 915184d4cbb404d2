"""Asking again: k8s.io/apiserver/pkg/util/webhook's WithExponentialBackoff, and client-go's heed of Retry-After.

    500, 501, 502, 504, 429    asked again, as is whatever carries Retry-After
    a broken connection        asked again
    refused, timed out, 4xx    the last word
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import trio

from kubechronicle.http.outgoing.client import Answer, AskError, Client

UNAVAILABLE: Final = 503
TOO_MANY: Final = 429


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

Observe = Callable[[Answer | AskError, float], None]
"""Told of each question by itself: what came of it, and the seconds it took."""


def unobserved(outcome: Answer | AskError, seconds: float) -> None:
    pass


async def ask_patiently(
    client: Client,
    body: bytes,
    *,
    backoff: Backoff = BACKOFF,
    timeout: float | None = None,
    observe: Observe = unobserved,
) -> Answer:
    """POST the body until there is an answer that is no passing failure, within ``timeout`` seconds in all (the
    client's). The last answer, whatever its status; AskError."""
    deadline = trio.current_time() + (client.timeout if timeout is None else timeout)
    waits = backoff.waits()
    while True:
        started = trio.current_time()
        outcome: Answer | AskError
        try:
            outcome = await client.ask(body=body, timeout=max(deadline - started, 0))
        except AskError as error:
            outcome = error
        observe(outcome, trio.current_time() - started)
        wait = next(waits, None)
        if isinstance(outcome, AskError):
            if not outcome.transient or wait is None or trio.current_time() + wait >= deadline:
                raise outcome
        else:
            asked_to_wait = retry_after(outcome.headers)
            if not (asked_to_wait or _is_passing(outcome.status)) or wait is None:
                return outcome
            wait = max(wait, asked_to_wait)
            if trio.current_time() + wait >= deadline:
                return outcome
        await trio.sleep(wait)


def retry_after(headers: Mapping[str, str]) -> int:
    """Seconds, 0 if the answer says none; client-go reads no dates either."""
    text = headers.get("retry-after", "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _is_passing(status: int) -> bool:
    return status == TOO_MANY or (status >= 500 and status != UNAVAILABLE)
