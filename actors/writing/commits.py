"""From what the rules made of a write to what the log is asked: the transaction, and its way through the actor.

A transaction's first change is the write itself, and its actor decides; whatever commits beside it follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import trio

from kubechronicle.actors.admission.chain import AdmissionChain
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.errors import ActorCrashed
from kubechronicle.actors.resource_actor import Commit, Outcome
from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.actors.writing.targets import Caller, Target, context_of
from kubechronicle.api.meta.encoding import encode_stored
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import Prepared
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Change, Key, Operation, Record, Refused, Transaction


class Proposal(msgspec.Struct, frozen=True):
    """A write that passed rules and admission, with what is to commit beside it."""

    prepared: Prepared
    beside: Sequence[CompanionChange] = ()


Prepare = Callable[[Entry], Proposal]


class Commits:
    def __init__(self, actors: ResourceActors, admission: AdmissionChain) -> None:
        self._actors = actors
        self._admission = admission

    async def commit(
        self, caller: Caller, target: Target, proposal: Proposal, old: Entry | None
    ) -> tuple[Record, ...] | Refused:
        """The records, the write's own first, or the log's refusal; errors as the actor and the appender raise them."""
        transaction = self._transaction(caller, target, proposal, old)
        while True:
            commit = self._actors.begin(transaction, deadline=caller.deadline)
            try:
                return told(await commit.wait(limited=caller.limited))
            except ActorCrashed:
                # Nothing happened; the next incarnation will decide it.
                if trio.current_time() >= caller.deadline:
                    raise

    def begin(self, caller: Caller, target: Target, proposal: Proposal, old: Entry) -> Commit:
        """Send it on its way without waiting for the outcome (``told(await commit.wait())``)."""
        return self._actors.begin(self._transaction(caller, target, proposal, old), deadline=caller.deadline)

    async def take_back(self, caller: Caller, entry: Entry, record: Record) -> bool:
        """Delete what has just been created; False if somebody has changed it meanwhile."""
        change = Change(
            key=record.key, uid=record.uid, expected=record.revision, operation=Operation.DELETE, body=record.body
        )
        released = (beside.change() for beside in self._admission.release(entry))
        transaction = Transaction(changes=(change, *released), who=caller.who)
        commit = self._actors.begin(transaction, deadline=caller.deadline)
        outcome = told(await commit.wait(limited=caller.limited))
        return not isinstance(outcome, Refused)

    async def commit_own_changes(self, caller: Caller, changes: Sequence[CompanionChange]) -> bool:
        """Commit changes of the server's own; False if one of them rests on something that has changed."""
        transaction = Transaction(changes=tuple(each.change() for each in changes), who=caller.who)
        commit = self._actors.begin(transaction, deadline=caller.deadline)
        outcome = told(await commit.wait(limited=caller.limited))
        return not isinstance(outcome, Refused)

    def _transaction(self, caller: Caller, target: Target, proposal: Proposal, old: Entry | None) -> Transaction:
        prepared = proposal.prepared
        beside = list(proposal.beside)
        obj = prepared.object
        gone = prepared.outcome is pipeline.Outcome.GONE
        if gone and prepared.last is not None:
            # What ends is the object as it stands; an update that let go of the last finalizer is not kept.
            obj = prepared.last
        if gone and old is not None:
            taken = {each.key for each in beside}
            beside += [each for each in self._admission.release(old) if each.key not in taken]
        metadata = obj["metadata"]
        change = Change(
            key=Key(target.rt.resource, target.namespace, metadata["name"]),
            uid=metadata["uid"],
            expected=0 if old is None else old.revision,
            operation=Operation.CREATE if old is None else Operation.DELETE if gone else Operation.UPDATE,
            body=encode_stored(obj),
            decoded=obj,
        )
        if not beside:
            return Transaction(changes=(change,), who=caller.who)
        return Transaction(changes=(change, *(each.change() for each in beside)), who=caller.who)


def prepare_delete(
    target: Target, old: Entry, options: DeleteOptions, *, obj: dict[str, Any] | None = None
) -> tuple[Prepared, bool]:
    """The deletion, or its first half: a graceful deletion that is over at once is stored as such before the object
    goes (then the second value is True). ``obj``: ``old`` with a last change, resourceVersion included."""
    prepared = pipeline.prepare_delete(target.rt, obj or old.object(), options, context_of(target))
    if prepared.outcome is pipeline.Outcome.STORE_THEN_GONE:
        return replace(prepared, outcome=pipeline.Outcome.STORE), True
    return prepared, False


def told(outcome: Outcome) -> tuple[Record, ...] | Refused:
    """The outcome of a commit, or its error raised."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
