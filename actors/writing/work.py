"""The work of one write: what rules and admission have made of it so far, and how it goes on after an answer from
outside.

    a write that may wait       the answer is requested where it stopped, and it goes on there
    any other                   the attempt ends; the next one finds the work, if all that was read is still so
    something has changed       the next attempt begins anew, with the answers that are known

See actors/unfinished_work.py and actors/external_answers.py.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec

from kubechronicle.actors.admission.chain import Attributes
from kubechronicle.actors.external_answers import NeedsExternalAnswer, take_work
from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.writing.targets import Target
from kubechronicle.api.pipeline.pipeline import Prepared
from kubechronicle.eventlog.entries import Entry


class Work(msgspec.Struct, kw_only=True):
    """A write on its way through admission and rules.

    ``attributes``: for mutating admission. ``accepted``: their object. ``name``: of the object before admission.
    ``stored``: the object to update. ``managed``: the managed fields of ``accepted`` before admission.
    ``prepared``: the result of the rules. ``admitted``: for validating admission, once that begins.
    """

    attributes: Attributes
    accepted: dict[str, Any] = msgspec.field(default_factory=dict)
    name: str = ""
    stored: dict[str, Any] = msgspec.field(default_factory=dict)
    managed: Any = None
    prepared: Prepared | None = None
    admitted: Attributes | None = None

    def admit(self, prepared: Prepared) -> None:
        """Begin validating admission."""
        self.prepared = prepared
        self.admitted = self.attributes.with_object(prepared.object, prepared.requested)

    def resolve_here(self, missing: NeedsExternalAnswer, target: Target, turn: Turn) -> Awaitable[None]:
        """Request an answer where the write is, if it can go on from there. Await the result at once, and ``go_on``.

        Raises ``missing`` otherwise.
        """
        progress = self.attributes.progress
        if progress is not None and progress.held is not None and turn.may_wait:
            answer = missing.resolve_here(turn.waits_until)
            if answer is not None:
                return answer
            missing.known = progress.answers
        self.keep_in(missing, target)
        raise missing

    def go_on(self, missing: NeedsExternalAnswer, target: Target, turn: Turn, reads: Reads) -> None:
        """Keep the answer that the write has waited for. Raises ``missing`` if the write must begin again.

        StatusError 504: the deadline has passed.
        """
        progress, old = self.attributes.progress, self.attributes.old
        assert progress is not None
        missing.keep_answers(progress.answers, turn.waits_until)
        same = old is None or reads.peek(target.rt.resource, target.namespace, target.name) is old
        if not (same and progress.is_current()):
            missing.known = progress.answers
            self.keep_in(missing, target)
            raise missing

    def keep_in(self, missing: NeedsExternalAnswer, target: Target) -> None:
        """Keep the work of an attempt that stops, if admission may go on from there."""
        progress = self.attributes.progress
        if progress is not None and progress.held is not None:
            missing.keep_work(target, self)


def unfinished(target: Target, old: Entry | None) -> Work | None:
    """Return the work of the attempt before, if everything that it has read is still so. ``old``: the object now."""
    work = take_work(target)
    if not isinstance(work, Work):
        return None
    attributes = work.attributes
    assert attributes.progress is not None
    return work if attributes.old is old and attributes.progress.is_current() else None
