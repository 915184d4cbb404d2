"""Pending work of an admission plugin: work that depends on the number of other objects, such as quotas, in steps.

    quotas of the namespace: 3         all steps at once
    quotas of the namespace: 1,000     steps for AT_ONCE seconds, then LongAdmission: the others with pauses
                                       an observed write goes on there (unfinished_work.py)
                                       another one begins again: the plugin returns its steps, and the result is known

A result is given to an attempt with the same object, on the same state as far as the plugin names it (Pending.read).
Steps that change the object work on that of their attempt, which has ended. The next one takes this object over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
import orjson
import trio
from msgspec import structs

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.evaluation import OnLoop
from kubechronicle.actors.external_answers import AT_ONCE, NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.actors.pauses import Pauses
from kubechronicle.actors.unfinished_work import Progress
from kubechronicle.api.meta.encoding import repeatedly
from kubechronicle.api.pipeline.scale import Scaled
from kubechronicle.api.values.allowance import ALLOWANCE
from kubechronicle.eventlog.entries import Entry

PendingSteps: TypeAlias = Generator[NeedsExternalAnswer | None, None, None]
"""Yield after each step; what is missing, where they go on once it is there. They change nothing of the write but its
lists and annotations; those of mutating plugins its object and ``reinvocation``, too."""


class Memory(Protocol):
    """Notes of a plugin about one write."""

    def copied(self) -> Memory:
        """Return the same notes for another attempt."""
        ...


class Reinvocation(msgspec.Struct):
    """The second run of the mutating plugins, after policies or webhooks have changed the object.

    ``wanted``: a plugin has changed the object, so that all run once more.
    ``second``: this is the second run.
    ``memory``: notes of plugins for it, by their names.
    ``original``: the object before its first change by a webhook. A rejected write is admitted again from there.
    """

    wanted: bool = False
    second: bool = False
    memory: dict[str, Memory] = msgspec.field(default_factory=dict)
    original: dict[str, Any] | None = None

    def forget(self, obj: dict[str, Any] | None) -> None:
        """Begin again: give ``obj`` back its members as they were before the changes of webhooks."""
        if self.original is not None and obj is not None:
            _replace(obj, self.original)
            if isinstance(obj, Scaled):
                obj.scale = obj.sent
        self.wanted = self.second = False
        self.memory.clear()
        self.original = None

    def copied(self) -> Reinvocation:
        """Return the same state, which does not change with this one."""
        return structs.replace(self, memory={plugin: memory.copied() for plugin, memory in self.memory.items()})

    def take(self, obj: dict[str, Any], other: Reinvocation, changed: dict[str, Any]) -> None:
        """Go on as another attempt, which has changed the same object. ``changed``: the new object or Scale."""
        if self.original is None and other.original is not None:
            self.original = dict(obj)
        self.wanted, self.memory = other.wanted, other.copied().memory
        if isinstance(obj, Scaled):
            obj.replace(changed)
        else:
            _replace(obj, changed)


def _replace(obj: dict[str, Any], other: dict[str, Any]) -> None:
    members = dict(other)
    obj.clear()
    obj.update(members)


class Pending(NamedTuple):
    """The rest of the work of a plugin.

    ``read``: the objects on which it rests; the result is that of no others.
    ``before``: for steps that change the object: its digest before them. b"": they do not change it.
    """

    steps: PendingSteps
    read: object = None
    before: bytes = b""


def _no_steps() -> PendingSteps:
    yield from ()


def digest(obj: dict[str, Any], *, any_order: bool = False) -> bytes:
    """Return a digest of an object. ``any_order``: the order of the members is irrelevant, which costs more."""
    values = (obj, obj.scale) if isinstance(obj, Scaled) else obj
    try:
        encoded = orjson.dumps(values, option=orjson.OPT_SORT_KEYS if any_order else None)
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate
        encoded = repr(values).encode(errors="surrogatepass")
    return hashlib.blake2b(encoded, digest_size=20).digest()


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

    @property
    def reinvocation(self) -> Reinvocation: ...

    @property
    def progress(self) -> Progress | None: ...


class _Admitted(NamedTuple):
    """The result of all steps of one plugin.

    ``pending``, ``object``, ``old``, ``reinvocation``: of the attempt whose result it is. ``changed``: returns the
    changed object, or its Scale.
    """

    pending: Pending
    object: dict[str, Any] | None
    old: Entry | None
    reinvocation: Reinvocation
    changed: Callable[[], dict[str, Any]]
    warnings: Sequence[str]
    annotations: Mapping[str, str]
    companions: Sequence[CompanionChange]
    measured: Sequence[Any]
    error: Exception | None

    def is_of(self, pending: Pending, attributes: AdmittedWrite) -> bool:
        of = self.pending
        same = self.old is attributes.old and of.read == pending.read and of.before == pending.before
        return same and (bool(of.before) or self.object == attributes.object)

    def give_to(self, attributes: AdmittedWrite) -> None:
        attributes.warnings.extend(self.warnings)
        attributes.annotations.update(self.annotations)
        attributes.companions.extend(self.companions)
        attributes.measured.extend(self.measured)
        if self.error is not None:
            raise self.error
        if self.pending.before and attributes.object is not None:
            changed = self.changed()
            if changed is attributes.object:  # this attempt has gone on, was rejected, and is at its beginning again
                changed = self.changed()
            attributes.reinvocation.take(attributes.object, self.reinvocation, changed)


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
            long = LongAdmission(key, pending, attributes, lengths, annotations)
            if attributes.progress is not None:
                attributes.progress.held = long
            raise long


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
        self._error: Exception | None = None

    def conclude(self, attributes: AdmittedWrite, state: object) -> None:
        """Conclude the step of the plugin for the attempt that goes on. StatusError: it rejects."""
        assert attributes is self._attributes, "the work of an attempt is its own"
        if self._error is not None:
            raise self._error

    async def resolve(self) -> None:
        await trio.lowlevel.checkpoint()
        pauses, progress = Pauses(), self._attributes.progress
        try:
            while True:
                missing = self._next()
                if missing is not None:
                    await missing.resolve()
                await pauses.pause()
        except StopIteration:
            pass
        except NeedsExternalAnswer as elsewhere:  # where the steps cannot go on: the next attempt begins them again
            if progress is not None and progress.held is self:
                progress.certain = False
            await elsewhere.resolve()
            return
        except Exception as problem:
            self._error = problem.with_traceback(None)
        await pauses.pause()
        if self._pending.before and isinstance(self._allowance, OnLoop):
            self._allowance.turn.slow = True  # the object may have grown, so its rules run in the thread
        if progress is not None:
            progress.held = self
        remember_answer(self._key, self._result())
        await pauses.pause()

    def _next(self) -> NeedsExternalAnswer | None:
        """Take a step, whose reads are observed, and whose expressions have an allowance of their own."""
        progress, allowance = self._attributes.progress, self._allowance
        token = ALLOWANCE.set(OnLoop(allowance.turn) if isinstance(allowance, OnLoop) else allowance)
        try:
            with nullcontext() if progress is None else progress.observed():
                return next(self._pending.steps)
        finally:
            ALLOWANCE.reset(token)

    def _result(self) -> _Admitted:
        attributes, (warnings, companions, measured) = self._attributes, self._lengths
        obj = attributes.object
        return _Admitted(
            self._pending._replace(steps=_no_steps()),
            obj,
            attributes.old,
            attributes.reinvocation.copied(),
            repeatedly(obj.scale if isinstance(obj, Scaled) else obj) if self._pending.before else dict,
            attributes.warnings[warnings:],
            {key: text for key, text in attributes.annotations.items() if self._annotations.get(key) != text},
            attributes.companions[companions:],
            attributes.measured[measured:],
            self._error,
        )
