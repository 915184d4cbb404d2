"""Work that stopped for an answer from outside: the place where it stopped, and all that it had read.

The next attempt of a decision begins anew, on the newest state. If everything that the former one had read is still so,
it would come to the same place. Then it goes on from there instead (actors/external_answers.py: ``keep_work``).

    plugin a reads namespace n → entry 7      webhook b must be asked      attempt ends
    answer                                    n is entry 7 still           goes on at b with the answer
                                              n is entry 9 meanwhile       begins with plugin a

Views return the same object until it changes, so results are compared by identity. While no view that was ever read
has changed at all, nothing is compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar, TypeVarTuple

P = ParamSpec("P")
T = TypeVar("T")
Given = TypeVarTuple("Given")

EXPECTED: Final = 64
"""Decisions of one kind without a question, after which no further one is expected to ask."""


Read = Callable[..., Any]
Reading = tuple[Read, tuple[Any, ...]]
"""A function that reads, and its arguments."""

Follow = Callable[[str, Callable[[], None]], None]
"""Call a function in each step that changes the objects of a resource, before they can be read."""

_UNREAD: Final = object()


class Progress:
    """The place in a sequence of steps at which a decision stopped, and its observations.

    ``step``: the index of the step to run next.
    ``held``: the unfinished work of that step, for itself; without any, the whole decision begins again.
    ``seconds``: spent in this step, and in all steps before it, so far.
    ``observations``: the result of each reading, by the function and its arguments. ``certain``: they are all that
    matters, and each had one result.
    ``answers``: those that the decision has waited for where it stopped, by their keys. Its attempts share them.
    ``begun``: numbers of (companions, measurements) of the write when the steps began; None: they have not begun.
    ``repeats``: readings are repeated, as the decision was refused on what it had read.
    """

    __slots__ = (
        "_changes",
        "_observer",
        "_outdated",
        "_unfollowed",
        "answers",
        "begun",
        "certain",
        "held",
        "observations",
        "repeats",
        "seconds",
        "step",
    )

    def __init__(self, observer: Observer | None = None) -> None:
        self._observer = observer
        self._changes, self._outdated = (0, 0) if observer is None else (observer.changes, observer.outdated)
        self._unfollowed: list[Reading] = []
        self.observations: defaultdict[Read, dict[tuple[Any, ...], Any]] = defaultdict(dict)
        self.answers: dict[object, object] = {}
        self.certain = True
        self.repeats = False
        self.reset()

    def reset(self) -> None:
        """Begin with the first step."""
        self.step = 0
        self.held: Any = None
        self.seconds = (0.0, 0.0)
        self.begun: tuple[int, int] | None = None

    def stop(self, steps: int, seconds: float, before: float) -> None:
        """Stop for an answer, ``steps`` further. ``seconds``, ``before``: spent in this step, and in all before it."""
        self.step += steps
        self.seconds = (seconds, before)
        if self.held is None:
            self.certain = False  # the step may have changed something already

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Note what is read within the block, which is part of this decision."""
        observer = self._observer
        if observer is None:
            yield
            return
        observer.progress = self
        try:
            yield
        finally:
            observer.progress = None

    def note(self, read: Read, given: tuple[Any, ...], found: Any) -> None:
        """Note the result of a reading whose changes nothing tells, or of a repeated one."""
        seen = self.observations[read]
        if given in seen:
            self.certain = self.certain and seen[given] is found
            return
        seen[given] = found
        self._unfollowed.append((read, given))

    def is_current(self) -> bool:
        """Tell whether everything that was read is still so."""
        if not self.certain:
            return False
        observer, changes = self._observer, self._changes
        if observer is not None:
            if observer.outdated != self._outdated:
                return False
            changes = observer.changes
        observations = self.observations
        readings = self._unfollowed if changes == self._changes else self._readings()
        for read, given in readings:
            if read(*given) is not observations[read][given]:
                return False
        self._changes = changes
        return True

    def _readings(self) -> Iterable[Reading]:
        return ((read, given) for read, seen in self.observations.items() for given in seen)


class Observer:
    """Notes the reads of the decision whose turn it is (``progress``); there is one at a time.

    ``follow``: tells of changes; None: every reading is repeated for a comparison. ``changes``: of the resources of
    which something was ever read. While there is none, readings of them are not repeated. ``outdated``: calls of
    ``outdate``.
    """

    def __init__(self, follow: Follow | None = None) -> None:
        self.progress: Progress | None = None
        self.changes = 0
        self.outdated = 0
        self._follow = follow
        self._followed: set[str] = set()

    def reading(self, read: Callable[[*Given], T], *, of_resource: bool = False) -> Callable[[*Given], T]:
        """Return the function, with its results noted. ``of_resource``: its first argument names the resource.

        Plugins repeat many readings, above all when they run again after a patch. The noted result serves them.
        """
        follows, followed = of_resource and self._follow is not None, self._followed

        def noted(*given: *Given) -> T:
            progress = self.progress
            if progress is None:
                return read(*given)
            seen = progress.observations[read]
            known = seen.get(given, _UNREAD)
            if known is not _UNREAD and not progress.repeats:
                return known  # type: ignore[no-any-return]
            found = read(*given)
            if known is not _UNREAD or not follows:
                progress.note(read, given, found)
                return found
            if given[0] not in followed:  # type: ignore[misc]
                self._begin_to_follow(given[0])  # type: ignore[misc]
            seen[given] = found
            return found

        return noted

    def uncertain(self, read: Callable[P, T]) -> Callable[P, T]:
        """Return a function whose results cannot be compared: a decision with one always begins again."""

        def noted(*given: P.args, **named: P.kwargs) -> T:
            if self.progress is not None:
                self.progress.certain = False
            return read(*given, **named)

        return noted

    def outdate(self) -> None:
        """Let all decisions that wait for an answer begin again, since something has changed that is not noted."""
        self.outdated += 1

    def _begin_to_follow(self, resource: str) -> None:
        assert self._follow is not None
        self._followed.add(resource)
        self._follow(resource, self._note_change)

    def _note_change(self) -> None:
        self.changes += 1


class Expectations:
    """The kinds of decisions that are expected to ask, since one of them has lately. Only these are observed."""

    def __init__(self, observer: Observer | None = None) -> None:
        self._observer = observer
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
        return Progress(self._observer)

    def asked(self, kind: Any) -> None:
        """Note that a decision of this kind has asked."""
        self._expected[kind] = EXPECTED
