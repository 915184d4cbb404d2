"""Transactions of the log for prepared writes. Pure.

The write's resource actor decides a transaction. Companion changes that charge or allocate precede the write, so that
their revisions are lower; those that release follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.writing.preparation import Proposal
from kubechronicle.actors.writing.targets import Target
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Change, Key, Operation, Record, Transaction, Who

Release = Callable[[Entry], Sequence[CompanionChange]]
"""Return the changes that release the allocations of a deleted object (AdmissionChain.release)."""


def kept_object(prepared: Prepared) -> dict[str, Any]:
    """Return the object that the log keeps of a change: before the update that removes its last finalizer, if any."""
    deletes = prepared.outcome is Outcome.GONE
    return prepared.last if deletes and prepared.last is not None else prepared.object


def transaction_for(
    target: Target, proposal: Proposal, old: Entry | None, body: bytes, release: Release, who: Who
) -> Transaction:
    """Return the transaction that commits a proposal prepared on ``old`` (None: a creation).

    ``body``: the stored form of its ``kept_object``.
    """
    prepared, companions = proposal.prepared, proposal.companions
    obj = kept_object(prepared)
    deletes = prepared.outcome is Outcome.GONE
    if deletes and old is not None:
        changed = {each.key for each in companions}
        companions = [*companions, *(each for each in release(old) if each.key not in changed)]
    metadata = obj["metadata"]
    change = Change(
        key=Key(target.rt.resource, target.namespace, metadata["name"]),
        uid=metadata["uid"],
        expected=0 if old is None else old.revision,
        operation=Operation.CREATE if old is None else Operation.DELETE if deletes else Operation.UPDATE,
        body=body,
        decoded=obj,
        mark=None if deletes else prepared.mark,
    )
    if not companions:
        return Transaction(changes=(change,), who=who)
    leads = [not deletes and each.object is not None and not each.follows for each in companions]
    before = [each for each, first in zip(companions, leads, strict=True) if first]
    after = [each for each, first in zip(companions, leads, strict=True) if not first]
    changes = (*(each.change() for each in before), change, *(each.change() for each in after))
    return Transaction(changes=changes, who=who, main=len(before))


def deletion_of(record: Record, entry: Entry, release: Release, who: Who) -> Transaction:
    """Return the transaction that deletes a created object, ``record`` and its ``entry``, unless it has changed."""
    change = Change(
        key=record.key, uid=record.uid, expected=record.revision, operation=Operation.DELETE, body=record.body
    )
    return Transaction(changes=(change, *(each.change() for each in release(entry))), who=who)


def transaction_of(changes: Sequence[CompanionChange], who: Who) -> Transaction:
    """Return the transaction of changes that accompany no write."""
    return Transaction(changes=tuple(each.change() for each in changes), who=who)
