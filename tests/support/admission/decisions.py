"""Decisions in a task, which wait for answers from outside as a write does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from kubechronicle.actors.external_answers import retry_with_answers
from kubechronicle.actors.large_work import LargeWork

T = TypeVar("T")


async def decided(attempt: Callable[[], Awaitable[T]], *, deadline: float = inf) -> T:
    """Await an attempt until it has all its answers."""
    turn = LargeWork().turn("tester")
    turn.begin_decision(deadline)
    try:
        return await retry_with_answers(attempt, turn.wait)
    finally:
        turn.end_decision()
