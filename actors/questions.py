"""What only somebody outside can tell: a webhook, an identity provider.

Rules here are decided at once, in functions without await. One that lacks an answer from outside raises Unanswered;
whoever called it from a task settles the question (asks, and remembers the answer) and decides again. So the ordinary
path, where everything is known or remembered, waits for nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

MAX_QUESTIONS: Final = 64
"""Questions one decision may ask, one after another. More means that answers are forgotten before they are used."""


class Unanswered(Exception):
    """Raised in place of a decision. ``settle`` asks, within its own time-out, and leaves an answer, or that there is
    none, where deciding again finds it; it raises nothing but trio.Cancelled."""

    @abstractmethod
    async def settle(self) -> None: ...


async def decided(decide: Callable[[], T]) -> T:
    """What ``decide`` says once everything it asks is answered. Waits for nothing if nothing has to be asked."""
    for _ in range(MAX_QUESTIONS):
        try:
            return decide()
        except Unanswered as question:
            await question.settle()
    return decide()
