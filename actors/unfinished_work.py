"""Work that stopped for an answer from outside: the place where it stopped, and all that it had read.

The next attempt of a decision begins anew, on the newest state. If everything that the former one had read is still so,
it would come to the same place. Then it goes on from there instead (actors/external_answers.py: ``keep_work``).

    plugin a reads namespace n → entry 7      webhook b must be asked      attempt ends
    answer                                    n is entry 7 still           goes on at b with the answer
                                              n is entry 9 meanwhile       begins with plugin a

Views return the same object until it changes, so results are compared by identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, TypeVarTuple

P = ParamSpec("P")
T = TypeVar("T")
Given = TypeVarTuple("Given")

EXPECTED: Final = 64
"""Decisions of one kind without a question, after which no further one is expected to ask."""


Reading = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function that reads, and its arguments."""


class Progress:
    """The place in a sequence of steps at which a decision stopped, and its observations.

    ``step``: the index of the step to run next.
    ``held``: the unfinished work of that step, for itself; without any, the whole decision begins again.
    ``seconds``: spent in this step, and in all steps before it, so far.
    ``observations``: the result of each reading. ``certain``: they are all that matters, and each had one result.
    ``answers``: those that the decision has waited for where it stopped, by their keys. Its attempts share them.
    ``begun``: (companions, measurements) of the write when the steps began.
    """

    __slots__ = ("answers", "begun", "certain", "held", "observations", "seconds", "step")

    def __init__(self) -> None:
        self.observations: dict[Reading, Any] = {}
        self.answers: dict[object, object] = {}
        self.certain = True
        self.reset()

    def reset(self) -> None:
        """Begin with the first step."""
        self.step = 0
        self.held: Any = None
        self.seconds = (0.0, 0.0)
        self.begun: tuple[int, int] | None = None

    def begin(self, companions: int, measured: int) -> tuple[int, int]:
        """Return the numbers of companions and measurements when the steps began: these, unless they go on."""
        if self.begun is None:
            self.begun = (companions, measured)
        return self.begun

    def stop(self, steps: int, seconds: float, before: float) -> None:
        """Stop for an answer, ``steps`` further. ``seconds``, ``before``: spent in this step, and in all before it."""
        self.step += steps
        self.seconds = (seconds, before)
        if self.held is None:
            self.certain = False  # the step may have changed something already

    def note(self, read: Callable[..., Any], given: tuple[Any, ...], found: Any) -> None:
        """Note the result of a reading. Plugins repeat many, above all when they run again after a patch."""
        if self.observations.setdefault((read, given), found) is not found:
            self.certain = False

    def is_current(self) -> bool:
        """Tell whether everything that was read is still so."""
        return self.certain and all(read(*given) is found for (read, given), found in self.observations.items())


class Observer:
    """Notes the reads of the decision whose turn it is (``progress``); there is one at a time."""

    def __init__(self) -> None:
        self.progress: Progress | None = None

    def reading(self, read: Callable[[*Given], T]) -> Callable[[*Given], T]:
        """Return the function, with its results noted."""

        def noted(*given: *Given) -> T:
            found = read(*given)
            if self.progress is not None:
                self.progress.note(read, given, found)
            return found

        return noted

    def uncertain(self, read: Callable[P, T]) -> Callable[P, T]:
        """Return a function whose results cannot be compared: a decision with one always begins again."""

        def noted(*given: P.args, **named: P.kwargs) -> T:
            if self.progress is not None:
                self.progress.certain = False
            return read(*given, **named)

        return noted


class Expectations:
    """The kinds of decisions that are expected to ask, since one of them has lately. Only these are observed."""

    def __init__(self) -> None:
        self._expected: dict[Any, int] = {}

    def begin(self, kind: Any) -> Progress | None:
        """Return the progress of a decision to observe, None if it is not expected to ask."""
        left = self._expected.get(kind)
        if left is None:
            return None
        if left:
            self._expected[kind] = left - 1
        else:
            del self._expected[kind]
        return Progress()

    def asked(self, kind: Any) -> None:
        """Note that a decision of this kind has asked."""
        self._expected[kind] = EXPECTED
