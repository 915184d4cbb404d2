"""Answers from webhooks and identity providers, for rules that are functions without ``await``.

A rule that lacks such an answer raises NeedsExternalAnswer. Its caller, in a task, awaits ``resolve``, which sends the
request and remembers the answer, and evaluates the rule again from the beginning. A rule whose answers are all known or
cached therefore waits for nothing.

    decide → NeedsExternalAnswer → resolve → decide → NeedsExternalAnswer → resolve → decide → decision

Each client of a webhook or provider chooses how long its answers serve later decisions, perhaps not at all. The
decision that requested an answer keeps it until it is made (``remember_answer``, ``recall_answer``): it requests no
answer twice, and so comes to an end.

A rule that is long work itself is done in steps (``in_steps``): with pauses, as if its result came from outside.

A write is admitted in a task. It waits for an answer at the plugin that needs it, and goes on there (``Turn.wait``).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar, cast

import trio

from kubechronicle.actors.pauses import Pauses
from kubechronicle.api.errors import status
from kubechronicle.api.values.steps import Steps

T = TypeVar("T")

Wait: TypeAlias = "Callable[[NeedsExternalAnswer], Awaitable[None]]"
"""Request a missing answer, which the decision finds afterwards. StatusError: it is not to be had."""

MAX_QUESTIONS: Final = 256
"""Requests in sequence for one decision: the number of groups an impersonated user may have."""

AT_ONCE: Final = 0.01
"""Seconds for which steps are taken without a pause."""

TOO_MANY: Final = "a decision needs more answers than may be asked for"

_answers: ContextVar[dict[object, object] | None] = ContextVar("answers", default=None)
_DEADLINE: Final = object()
"""The key of the deadline among the answers."""


class NeedsExternalAnswer(Exception):
    """Raised instead of a decision that lacks an answer from outside."""

    keeps_deadline: ClassVar[bool] = False
    """``resolve`` ends at ``decision_deadline()`` by itself."""

    @abstractmethod
    async def resolve(self) -> None:
        """Request the answer, within a timeout of its own, and remember it, or that there is none, for the next
        attempt. Raises nothing but trio.Cancelled."""


def remember_answer(key: object, answer: object) -> None:
    """Remember an answer until this task's decision is made. Called by ``resolve``."""
    answers = _answers.get()
    if answers is not None:
        answers[key] = answer


def recall_answer(key: object) -> object | None:
    """Return the answer remembered for this task's decision."""
    answers = _answers.get()
    return answers.get(key) if answers is not None else None


def deciding_again() -> bool:
    """Tell whether this task's decision has asked for an answer before: then it remembers answers."""
    return _answers.get() is not None


def decision_deadline() -> float:
    """Return the trio time at which this task's decision must be made; infinity: at any time."""
    answers = _answers.get()
    found = math.inf if answers is None else answers.get(_DEADLINE, math.inf)
    assert isinstance(found, float)
    return found


def in_steps(key: object, steps: Steps[T], *, long: bool = False) -> T:
    """Return the result of steps. NeedsExternalAnswer: they take long, so the rest is done with pauses.

    ``key``: of everything that the result depends on, unless it may be that of any moment of the decision.
    ``long``: they are known to take long, and have not begun.
    """
    known = recall_answer(key)
    if isinstance(known, KeptOutcome):
        return cast("T", known.result())
    began = perf_counter()
    while not long:
        try:
            next(steps)
        except StopIteration as stop:
            return cast("T", stop.value)
        long = perf_counter() - began > AT_ONCE
    raise LongWork(key, steps)


def awaiting(decide: Callable[[], T]) -> Generator[NeedsExternalAnswer, None, T]:
    """Return a decision, as a step of several. Yield each answer that it lacks, and go on once it is there."""
    while True:
        try:
            return decide()
        except NeedsExternalAnswer as missing:
            yield missing


class KeptOutcome(NamedTuple):
    """The value of work that an attempt has left, or the error that it ended with."""

    value: Any = None
    error: Exception | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class LongWork(NeedsExternalAnswer):
    """A decision is so much work that it takes several steps."""

    def __init__(self, key: object, steps: Steps[Any]) -> None:
        super().__init__()
        self._key, self._steps = key, steps

    async def resolve(self) -> None:
        try:
            outcome = KeptOutcome(await Pauses().take(self._steps))
        except Exception as error:
            outcome = KeptOutcome(error=error.with_traceback(None))
        remember_answer(self._key, outcome)


async def decide_with_answers(decide: Callable[[], T], missing: NeedsExternalAnswer | None = None) -> T:
    """Call ``decide`` until it has every answer it needs, and return its decision.

    ``missing``: the answer it lacked when the caller tried it. StatusError 500: it needs more than MAX_QUESTIONS.
    """
    if missing is None:
        try:
            return decide()
        except NeedsExternalAnswer as error:
            missing = error
    with _answers_of_one_decision():
        for _ in range(MAX_QUESTIONS):
            await missing.resolve()
            try:
                return decide()
            except NeedsExternalAnswer as error:
                missing = error
    raise status.internal_error(TOO_MANY)


async def retry_with_answers(attempt: Callable[[], Awaitable[T]], wait: Wait) -> T:
    """Await ``attempt`` until it has every answer it needs, and return its result. ``wait``: for one of them.

    An attempt that raises NeedsExternalAnswer must have left nothing behind. StatusError 500: it needs too many.
    """
    for _ in range(MAX_QUESTIONS):
        try:
            return await attempt()
        except NeedsExternalAnswer as error:
            missing = without_frames(error)
        await wait(missing)
    raise status.internal_error(TOO_MANY)


def begin_remembering() -> bool:
    """Remember the answers of this task's decision from now on. False: an outer decision does so already."""
    if _answers.get() is not None:
        return False
    _answers.set({})
    return True


def end_remembering() -> None:
    """Forget the answers of this task's decision, which is made."""
    _answers.set(None)


async def resolve_until(deadline: float, missing: NeedsExternalAnswer) -> None:
    """Request an answer, and remember it. StatusError 504: the deadline (trio time) passed before it came."""
    answers = _answers.get()
    assert answers is not None, "begin_remembering comes first"
    answers[_DEADLINE] = deadline
    if missing.keeps_deadline:
        await missing.resolve()
    else:
        with trio.move_on_at(deadline):
            await missing.resolve()
    if trio.current_time() >= deadline:
        raise status.RequestTimedOut


def without_frames(missing: NeedsExternalAnswer) -> NeedsExternalAnswer:
    """Release the frames of the attempt. Through them the exception refers to itself, and waits for the collector."""
    return missing.with_traceback(None)


@contextmanager
def _answers_of_one_decision() -> Iterator[None]:
    """Remember answers until the end of the block. A decision within a decision shares the outer one's answers."""
    begun = begin_remembering()
    try:
        yield
    finally:
        if begun:
            end_remembering()
