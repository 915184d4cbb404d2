"""What only somebody outside can tell: a webhook, an identity provider.

Rules here are decided at once, in functions without await. One that lacks an answer from outside raises Unanswered;
whoever called it from a task settles the question (asks, and remembers the answer) and decides again. So the ordinary
path, where everything is known or remembered, waits for nothing.

    decide → Unanswered → settle → decide → Unanswered → settle → decide → decision

How long an answer is remembered for others is the business of whoever asks; it may be no time at all. For the decision
that asked it is kept until that decision is made (``keep``, ``kept``), so that each comes to an end: an answer is never
asked for twice by one decision, and never kept longer than it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

import trio

from kubechronicle.api.errors import status

T = TypeVar("T")

MAX_QUESTIONS: Final = 256
"""Questions one decision may ask, one after another: as many as somebody to be impersonated may have groups."""

TOO_MANY: Final = "a decision needs more answers than may be asked for"

_answers: ContextVar[dict[object, object] | None] = ContextVar("answers", default=None)


class NeedsExternalAnswer(Exception):
    """Raised in place of a decision. ``settle`` asks, within its own time-out, and leaves an answer, or that there is
    none, where deciding again finds it; it raises nothing but trio.Cancelled."""

    @abstractmethod
    async def settle(self) -> None: ...


def keep(key: object, answer: object) -> None:
    """Keep an answer for the decision that this task is about. For ``settle``."""
    answers = _answers.get()
    if answers is not None:
        answers[key] = answer


def kept(key: object) -> object | None:
    """What has been kept for the decision that this task is about."""
    answers = _answers.get()
    return answers.get(key) if answers is not None else None


async def decided(decide: Callable[[], T], unanswered: NeedsExternalAnswer | None = None) -> T:
    """What ``decide`` says once everything it asks is answered. Waits for nothing if nothing has to be asked.
    ``unanswered``: what it has asked already, where somebody has called it. StatusError 500: it never stops asking."""
    if unanswered is None:
        try:
            return decide()
        except NeedsExternalAnswer as question:
            unanswered = question
    with _keeping():
        for _ in range(MAX_QUESTIONS):
            await unanswered.settle()
            try:
                return decide()
            except NeedsExternalAnswer as question:
                unanswered = question
    raise status.internal_error(TOO_MANY)


async def settled(attempt: Callable[[], Awaitable[T]], *, deadline: float) -> T:
    """As ``decided``, of an attempt that may wait itself. It is made again from its beginning, so one that raises
    Unanswered must have left nothing behind. StatusError 504: the deadline (trio time) passed while somebody was asked.
    """
    try:
        return await attempt()
    except NeedsExternalAnswer as question:
        unanswered = question
    with _keeping():
        for _ in range(MAX_QUESTIONS):
            with trio.move_on_at(deadline) as limit:
                await unanswered.settle()
            if limit.cancelled_caught:
                raise status.timeout("request did not complete within the allotted timeout")
            try:
                return await attempt()
            except NeedsExternalAnswer as question:
                unanswered = question
    raise status.internal_error(TOO_MANY)


@contextmanager
def _keeping() -> Iterator[None]:
    """What is decided within a decision shares its answers."""
    if _answers.get() is not None:
        yield
        return
    token = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(token)
