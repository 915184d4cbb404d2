"""The CPU time that the expressions and patterns of a decision may take, beside their cost.

Costs are kube-apiserver's, and say what evaluation costs in Go: a unit takes 0.1 to 4 µs here. So the time is bounded,
too. A decision has one allowance for all of its expressions and patterns (``ALLOWANCE``):

    on the event loop     some milliseconds    then the decision begins again, and goes on in a thread
    in the thread         some seconds         then the expression fails as one that costs too much

The clock belongs to the maker of an allowance. It is read after each STEP units of cost, which small expressions never
reach. Functions that take longer than their cost says weigh more (Overload.weight). Work in one piece, that nothing can
interrupt, tells its duration before it begins: ``check(need)``. Compilation tells it, too, and pays: ``charge``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

STEP: Final = 500
"""Units of cost between two looks at the clock: about 0.1 ms of usual functions, 2 ms of the dearest ones."""

MOST_MADE: Final = 64 << 20
"""Bytes of texts and lists that the functions of one allowance make, as far as their cost does not bound them."""


class Allowance:
    """The time of one decision. It counts within its ``with`` blocks, which may be nested.

    ``room``: units of cost until the next look at the clock.
    """

    __slots__ = ("_clock", "_depth", "_exceeded", "_left", "_made", "_until", "_walked", "room")

    def __init__(self, clock: Callable[[], float], seconds: float, exceeded: Callable[[], BaseException]) -> None:
        """``exceeded``: makes the exception to raise when the time is used up."""
        self._clock = clock
        self._left = seconds
        self._exceeded = exceeded
        self._depth = 0
        self._until = 0.0
        self._made = self._walked = 0
        self.room: float = STEP

    def __enter__(self) -> None:
        if not self._depth:
            self._until = self._clock() + self._left
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._left = self._until - self._clock()

    @property
    def left(self) -> float:
        """The seconds that are left, outside of its blocks."""
        return self._left

    def check(self, need: float = 0.0) -> None:
        """Raise if less than ``need`` seconds are left."""
        left = self._until - self._clock() if self._depth else self._left
        if left < need:
            raise self._exceeded()

    def charge(self, seconds: float) -> None:
        """Take the estimated time of a compilation that follows. Raise if less is left."""
        self.check(seconds)
        if self._depth:
            self._until -= seconds
        else:
            self._left -= seconds

    def grow(self) -> None:
        """Note that a small object of the decision becomes large. Raise if the decision must go on elsewhere then."""

    def walk(self, steps: int) -> None:
        """Count steps of about a microsecond whose cost nobody counts, such as those of a deep comparison."""
        self._walked += steps
        if self._walked > STEP:
            self._walked = 0
            self.check()

    def make(self, size: int) -> None:
        """Count bytes before they are made. Raise if there are too many."""
        self._made += size
        if self._made > MOST_MADE:
            raise self._exceeded()


class TooLong(Exception):
    """Work that its caller can do without takes too long."""


class Estimated(Allowance):
    """An allowance without a clock, of estimated seconds: TooLong beyond. Only long pieces of work count."""

    __slots__ = ()

    def __init__(self, seconds: float) -> None:
        super().__init__(float, seconds, TooLong)

    def check(self, need: float = 0.0) -> None:
        super().check(need)
        if self._depth:
            self._until -= need
        else:
            self._left -= need

    def charge(self, seconds: float) -> None:
        self.check(seconds)


class InThread(Allowance):
    """The allowance of a decision in a thread: a compilation or a long match there does not count, but evaluation."""

    __slots__ = ("_ended",)

    def __init__(self, clock: Callable[[], float], seconds: float, exceeded: Callable[[], BaseException]) -> None:
        super().__init__(clock, seconds, exceeded)
        self._ended = False

    def end(self) -> None:
        """Let the next look at the clock be the last one: nobody waits for the decision. Any thread may call it."""
        self._ended = True

    def check(self, need: float = 0.0) -> None:
        if self._ended:
            raise self._exceeded()
        if self._depth:
            super().check()

    def charge(self, seconds: float) -> None:
        if self._ended:
            raise self._exceeded()


class _Unlimited(Allowance):
    """The allowance of callers that set none: tests, command lines, and work that was measured otherwise."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(float, 0.0, AssertionError)
        self.room = float("inf")

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def check(self, need: float = 0.0) -> None: ...

    def charge(self, seconds: float) -> None: ...

    def walk(self, steps: int) -> None: ...

    def make(self, size: int) -> None: ...


UNLIMITED: Final = _Unlimited()

ALLOWANCE: Final[ContextVar[Allowance]] = ContextVar("allowance", default=UNLIMITED)
"""The allowance of the present decision."""


def constant_context() -> list[Any]:
    """Return the context in which constants are evaluated: no variables, and any budget."""
    return [{}, 0, float("inf"), float("inf"), UNLIMITED]
