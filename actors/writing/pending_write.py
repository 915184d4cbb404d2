"""The records of one write: its result, and its state while it is carried out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import structs

from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.writing.preparation import MakeObject, MayCreate, Prepare, Proposal, always_allowed
from kubechronicle.actors.writing.targets import Caller, Target, name_suffix, new_uid
from kubechronicle.api.errors import status
from kubechronicle.api.pipeline.pipeline import Prepared, WriteContext
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key, Rejected

MAX_NAME_ATTEMPTS = 8
"""Names tried for one generateName (k8s.io/apiserver: maxNameGenerationCreateAttempts)."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a write.

    ``entry``: the object as stored.
    ``object``: instead of ``entry``, the object of a dry run or the last state of a deleted one (storage version).
    ``before``: the object before the write, if the caller may want to compare; None for a creation.
    ``created``: the object is new.
    """

    entry: Entry | None = None
    object: dict[str, Any] | None = None
    prepared: Prepared | None = None
    before: Entry | None = None
    created: bool = False
    warnings: Sequence[str] = ()


class Creation(msgspec.Struct, kw_only=True):
    """The creation of a missing object.

    ``object``: returns a fresh copy of the object, in the version of the request.
    ``context``: replaced for each name tried.
    """

    object: MakeObject
    context: WriteContext
    may_create: MayCreate = always_allowed


class PendingWrite(msgspec.Struct, kw_only=True):
    """A write on its way: the request, and below it the state of the latest attempt.

    ``change``: prepares a change of the existing object; None: the request only creates.
    ``creation``: creates a missing object; None: a missing object is rejected with 404.
    ``check_sent``: rejects a request that is wrong by itself, before the 404 for a missing object.
    ``deletes``: the request is a deletion.
    ``size``: the bytes of the body.
    ``turn``: the request's share in the large work.
    ``locks``: keys to lock besides those of the admission plugins.

    ``seen``: the revision of the view when the attempt began.
    ``old``: the object the write was prepared on; None: there was none.
    ``proposal``: the prepared write, if it was not rejected.
    ``error``: the rejection by rules or admission.
    ``conflict``: the rejection by the log: a key of the transaction has changed.
    ``rechecked``: a rejection has been checked again on a newer state.
    ``names_tried``: the names of a creation that were taken.
    """

    caller: Caller
    target: Target
    change: Prepare | None = None
    creation: Creation | None = None
    check_sent: Callable[[], None] | None = None
    deletes: bool = False
    size: int = 0
    turn: Turn
    locks: Sequence[Key] = ()

    seen: int = 0
    old: Entry | None = None
    proposal: Proposal | None = None
    error: status.StatusError | None = None
    conflict: Rejected | None = None
    rechecked: bool = False
    names_tried: int = 0

    def begin_attempt(self, seen: int) -> None:
        """Forget the previous attempt."""
        self.seen = seen
        self.old = self.proposal = self.error = self.conflict = None

    @property
    def key(self) -> Key:
        """The key of the object. The key of a creation is known once it is prepared."""
        target, proposal = self.target, self.proposal
        name = target.name if proposal is None else proposal.prepared.object["metadata"]["name"]
        return Key(target.rt.resource, target.namespace, name)

    def handle_taken_name(self, existing: Entry | None) -> None:
        """Set a creation whose name is taken up for its next attempt. StatusError 409: there is none."""
        target, creation, proposal = self.target, self.creation, self.proposal
        if creation is None or proposal is None or self.change is not None:
            return  # the next attempt updates the existing object
        self.names_tried += 1
        if existing is None and self.names_tried < MAX_NAME_ATTEMPTS:
            return  # another replica has deleted the object
        if not proposal.generated_name or target.dry_run:
            error = status.already_exists(target.rt, self.key.name)
            if existing is not None and existing.ending().deleted:
                error = error.with_message(f"object is being deleted: {error.message}")
            raise error
        if self.names_tried == MAX_NAME_ATTEMPTS:
            raise status.generate_name_conflict(target.rt, self.key.name)
        creation.context = structs.replace(creation.context, name_suffix=name_suffix(), uid=new_uid())
