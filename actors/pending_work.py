"""Pending work of an admission plugin: work that depends on the number of other objects, such as quotas, in steps.

    quotas of the namespace: 3         all steps at once
    quotas of the namespace: 1,000     steps for AT_ONCE seconds, then LongAdmission: the others with pauses
                                       next attempt: the plugin returns its steps again, and the result is known

A result is given to an attempt with the same object, on the same state as far as the plugin names it (Pending.read).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.evaluation import OnLoop
from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.actors.pauses import Pauses
from kubechronicle.api.values.allowance import ALLOWANCE
from kubechronicle.eventlog.entries import Entry

AT_ONCE: Final = 0.01
"""Seconds for which the steps of one plugin are taken without a pause."""

PendingSteps: TypeAlias = Generator[NeedsExternalAnswer | None, None, None]
"""Yield after each step; what is missing, where they go on once it is there. They change nothing of the write but its
lists and annotations."""


class Pending(NamedTuple):
    """The rest of the work of a plugin. ``read``: the objects on which it rests; the result is that of no others."""

    steps: PendingSteps
    read: object = None


class AdmittedWrite(Protocol):
    """The part of a write's attributes (admission/chain.py) on which steps work."""

    @property
    def object(self) -> dict[str, Any] | None: ...

    @property
    def old(self) -> Entry | None: ...

    @property
    def warnings(self) -> list[str]: ...

    @property
    def annotations(self) -> dict[str, str]: ...

    @property
    def companions(self) -> list[CompanionChange]: ...

    @property
    def measured(self) -> list[Any]: ...


class _Admitted(NamedTuple):
    """The result of all steps of one plugin. ``read``, ``object``, ``old``: of the attempt whose result it is."""

    read: object
    object: dict[str, Any] | None
    old: Entry | None
    warnings: Sequence[str]
    annotations: Mapping[str, str]
    companions: Sequence[CompanionChange]
    measured: Sequence[Any]
    error: Exception | None

    def is_of(self, pending: Pending, attributes: AdmittedWrite) -> bool:
        same = self.old is attributes.old and self.read == pending.read
        return same and self.object == attributes.object

    def give_to(self, attributes: AdmittedWrite) -> None:
        attributes.warnings.extend(self.warnings)
        attributes.annotations.update(self.annotations)
        attributes.companions.extend(self.companions)
        attributes.measured.extend(self.measured)
        if self.error is not None:
            raise self.error


def take_at_once(pending: Pending, key: object, attributes: AdmittedWrite) -> None:
    """Take the steps of a plugin, unless their result is known. LongAdmission: they are many."""
    known = recall_answer(key)
    if isinstance(known, _Admitted) and known.is_of(pending, attributes):
        known.give_to(attributes)
        return
    lengths = len(attributes.warnings), len(attributes.companions), len(attributes.measured)
    annotations, began = dict(attributes.annotations), perf_counter()
    for missing in pending.steps:
        if missing is not None:
            raise missing
        if perf_counter() - began > AT_ONCE:
            raise LongAdmission(key, pending, attributes, lengths, annotations)


class LongAdmission(NeedsExternalAnswer):
    """The steps of one plugin take long."""

    def __init__(
        self,
        key: object,
        pending: Pending,
        attributes: AdmittedWrite,
        lengths: tuple[int, int, int],
        annotations: Mapping[str, str],
    ) -> None:
        super().__init__()
        self._key, self._pending, self._attributes = key, pending, attributes
        self._lengths, self._annotations = lengths, annotations
        self._allowance = ALLOWANCE.get()

    async def resolve(self) -> None:
        pauses, error = Pauses(), None
        try:
            while True:
                missing = self._next()
                if missing is not None:
                    await missing.resolve()
                await pauses.pause()
        except StopIteration:
            pass
        except NeedsExternalAnswer as elsewhere:  # where the steps cannot go on: the next attempt begins them again
            await elsewhere.resolve()
            return
        except Exception as problem:
            error = problem.with_traceback(None)
        remember_answer(self._key, self._result(error))

    def _next(self) -> NeedsExternalAnswer | None:
        """Take a step, whose expressions have an allowance of their own."""
        if not isinstance(self._allowance, OnLoop):
            return next(self._pending.steps)
        token = ALLOWANCE.set(OnLoop(self._allowance.turn))
        try:
            return next(self._pending.steps)
        finally:
            ALLOWANCE.reset(token)

    def _result(self, error: Exception | None) -> _Admitted:
        attributes, (warnings, companions, measured) = self._attributes, self._lengths
        return _Admitted(
            self._pending.read,
            attributes.object,
            attributes.old,
            attributes.warnings[warnings:],
            {key: text for key, text in attributes.annotations.items() if self._annotations.get(key) != text},
            attributes.companions[companions:],
            attributes.measured[measured:],
            error,
        )
