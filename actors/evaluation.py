"""Evaluation of clients' expressions and patterns: on the event loop while it is quick, in the thread otherwise.

A write has an allowance of ON_LOOP seconds for all its rules and policies together. When it is used up (NeedsThread):

    rules of the kind (Turn.run)    the write is prepared again, and they run in the thread (Turn.slow)
    a policy, a condition (judge)   evaluated in the thread with the same values; the write waits, and finds the result

So the event loop serves others after each allowance, and the write goes on with what is not judged yet. All evaluations
of a request in the thread share IN_THREAD seconds. Then the expression fails as one that costs too much, as it would in
kube-apiserver, which evaluates it faster. A request that has ended ends its evaluation, too.

A result is kept for the decision that needed it, by its ``key`` and by the values it was made of: another attempt may
bring another object. Rights are asked on the event loop, also by an expression in the thread: they are read from views.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter, thread_time
from typing import Any, Final, ParamSpec, Protocol, TypeVar, cast

import msgspec
import trio

from kubechronicle.actors.external_answers import (
    MAX_QUESTIONS,
    TOO_MANY,
    KeptOutcome,
    NeedsExternalAnswer,
    deciding_again,
    recall_answer,
    remember_answer,
)
from kubechronicle.api.errors import status
from kubechronicle.api.values.allowance import ALLOWANCE, Allowance, InThread

P = ParamSpec("P")
T = TypeVar("T")

ON_LOOP: Final = 0.015
"""Seconds of one attempt on the event loop. Twenty usual policies take a tenth of that."""

IN_THREAD: Final = 5.0
"""Seconds of CPU of one request in the thread. The costs that kube-apiserver allows an object take about as long."""

GROWN: Final = 16 * 1024
"""Bytes that admission adds to an object, after which it is as large as large_work.LARGE."""

MAX_GROWTH: Final = 3 * 1024 * 1024
"""Bytes that the copies of a patch may add."""

_encoded: Final = msgspec.json.Encoder().encode


class ThreadTurn(Protocol):
    """The share of a request in the large work (large_work.py)."""

    slow: bool
    seconds: float

    @property
    def large(self) -> bool: ...

    async def begin(self, size: int) -> None: ...

    async def run(self, size: int, function: Callable[..., T], *arguments: object) -> T: ...

    def pause(self) -> None: ...


class OnLoop(Allowance):
    """The allowance of one attempt. The clock is that of the wall: that of the thread takes a system call."""

    __slots__ = ("turn",)

    def __init__(self, turn: ThreadTurn) -> None:
        super().__init__(perf_counter, ON_LOOP, partial(NeedsThread, turn))
        self.turn = turn

    def grow(self) -> None:
        if not self.turn.slow:  # otherwise only admission runs here, which cannot go on elsewhere
            raise NeedsThread(self.turn)


class NeedsThread(NeedsExternalAnswer):
    """Raised instead of a decision whose expressions take long."""

    def __init__(self, turn: ThreadTurn) -> None:
        super().__init__("the expressions take long")
        self._turn = turn
        self.judge: Callable[[], Any] | None = None
        self.key: Hashable = None

    async def resolve(self) -> None:
        """Evaluate in the thread what could not be judged. Whatever it raises is raised in the next attempt."""
        self._turn.slow = True
        if self.judge is None:
            await trio.lowlevel.checkpoint()
            return
        for _ in range(MAX_QUESTIONS):
            try:
                await self._turn.begin(0)
                outcome = KeptOutcome(await self._turn.run(0, self.judge))
            except NeedsExternalAnswer as missing:  # an authorizer's
                self._turn.pause()
                await missing.resolve()
                continue
            except Exception as error:  # raised again where the decision needs the value
                outcome = KeptOutcome(error=error.with_traceback(None))
            break
        else:
            outcome = KeptOutcome(error=status.internal_error(TOO_MANY))
        remember_answer(self.key, outcome)


def judge(key: Hashable, values: Any, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call a function that evaluates expressions. NeedsThread: it takes long, and will be known in the next attempt.

    ``key``: names the judgement within the decision. ``values``: the JSON on which it depends.
    """
    allowance = ALLOWANCE.get()
    if not isinstance(allowance, OnLoop):
        return function(*arguments, **named)
    again = deciding_again()
    place = _place(key, values) if again else None
    known = recall_answer(place) if again else None
    if isinstance(known, KeptOutcome):
        return cast("T", known.result())
    try:
        with allowance:
            allowance.check()
            value = function(*arguments, **named)
    except NeedsThread as missing:
        if missing.judge is None:
            missing.judge = partial(_bounded, partial(function, *arguments, **named))
            missing.key = place or _place(key, values)
        raise
    if again:
        remember_answer(place, KeptOutcome(value))
    return value


def judge_large(key: Hashable, values: Any, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Do the same with a function of large values, in the thread from the beginning."""
    allowance = ALLOWANCE.get()
    if not isinstance(allowance, OnLoop):
        return function(*arguments, **named)
    place = _place(key, values)
    known = recall_answer(place)
    if not isinstance(known, KeptOutcome):
        missing = NeedsThread(allowance.turn)
        missing.judge, missing.key = partial(_bounded, partial(function, *arguments, **named)), place
        raise missing
    return cast("T", known.result())


def judge_copy(key: Hashable, values: Any, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Do the same with a function that copies its values: if the request is large, in the thread from the beginning."""
    allowance = ALLOWANCE.get()
    judging = judge_large if isinstance(allowance, OnLoop) and allowance.turn.large else judge
    return judging(key, values, function, *arguments, **named)


def note_growth(size: int) -> None:
    """Note that admission has made the object of a write larger by ``size`` bytes. If they are many, the rest of its
    rules run in the thread."""
    allowance = ALLOWANCE.get()
    if size > GROWN and isinstance(allowance, OnLoop):
        allowance.turn.slow = True


def _bounded(function: Callable[[], T]) -> T:
    with ALLOWANCE.get():
        return function()


def _place(key: Hashable, values: Any) -> Hashable:
    """Return the key of an outcome among the answers of the decision."""
    return key, hashlib.blake2b(_encoded(values), digest_size=20).digest()


async def run_in_thread(run: Callable[..., Any], turn: ThreadTurn, function: Callable[..., T], *arguments: object) -> T:
    """Await ``run(function, *arguments)``, which calls the function in a thread, within the allowance of the turn."""
    allowance = InThread(thread_time, turn.seconds, _costs_too_much)
    try:
        found: T = await run(_with_allowance, allowance, function, *arguments)
        return found
    except trio.Cancelled:
        allowance.end()
        raise
    finally:
        turn.seconds = allowance.left


async def evaluate_in_thread(
    function: Callable[[], T], *, seconds: float, limiter: trio.CapacityLimiter, exceeded: Callable[[], Exception]
) -> T:
    """Call a function in a thread of its own. Its expressions may take so many seconds together, then ``exceeded``."""
    allowance = InThread(thread_time, seconds, exceeded)
    judged = partial(_with_allowance, allowance, _bounded, function)
    try:
        return await trio.to_thread.run_sync(judged, limiter=limiter, abandon_on_cancel=True)
    except trio.Cancelled:
        allowance.end()
        raise


def _with_allowance(allowance: Allowance, function: Callable[..., T], *arguments: object) -> T:
    ALLOWANCE.set(allowance)  # in the thread's copy of the context
    return function(*arguments)


def _costs_too_much() -> Exception:
    from kubechronicle.api.cel.errors import CostExceeded  # loaded with the first expression

    return CostExceeded()


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Bound the expressions of operators on values of clients, within the block, on the event loop. CostExceeded."""
    allowance = Allowance(thread_time, seconds, _costs_too_much)
    token = ALLOWANCE.set(allowance)
    try:
        with allowance:
            yield
    finally:
        ALLOWANCE.reset(token)


def on_event_loop(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call a function of the event loop's state, from its thread or from one that evaluates an expression."""
    if isinstance(ALLOWANCE.get(), InThread):
        return trio.from_thread.run_sync(partial(function, *arguments, **named))
    return function(*arguments, **named)
