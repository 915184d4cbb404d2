"""The pending writes of requests: how each verb makes or changes an object, for the loop that carries writes out.

``preparation``: the rules and admission that the write passes, on the views or on an overlay (together.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import structs

from kubechronicle.actors.evaluation import NeedsThread, OnLoop
from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.writing.preparation import (
    MakeObject,
    MayCreate,
    Preparation,
    Prepare,
    Proposal,
    always_allowed,
)
from kubechronicle.actors.writing.targets import Caller, Target, context_of, name_suffix, new_uid, with_name_suffix
from kubechronicle.api.errors import status
from kubechronicle.api.meta.encoding import repeatedly
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import patches, pipeline, tracking
from kubechronicle.api.pipeline.patching import APPLY_YAML, check_syntax
from kubechronicle.api.pipeline.pipeline import Prepared, WriteContext
from kubechronicle.api.values.allowance import ALLOWANCE
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key, Rejected

# -- pending write -----------------------------------------------------------------------------------------------------
#
# The records of one write: its result, and its state while it is carried out.

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


# -- requests ----------------------------------------------------------------------------------------------------------


async def creation(
    preparation: Preparation,
    caller: Caller,
    target: Target,
    turn: Turn,
    body: Any,
    *,
    duplicates: Sequence[str] = (),
    size: int = 0,
) -> tuple[PendingWrite, Sequence[str]]:
    """Return the write that creates the object of ``body``, and the warnings of decoding. StatusError 4xx."""
    context = context_of(target, creates=True)
    if turn.is_small(size) and target.rt.custom is None:
        obj, fresh_copy, warnings = _decoded(target, body, context=context, duplicates=duplicates, create=True)
    else:
        decode = partial(_decoded, target, context=context, duplicates=duplicates, create=True)
        obj, fresh_copy, warnings = await _decode(target, turn, body, size, decode)
    made = Creation(object=fresh_copy, context=with_name_suffix(target, context, obj))
    return PendingWrite(caller=caller, target=target, creation=made, size=size, turn=turn), warnings


async def replacement(
    preparation: Preparation,
    caller: Caller,
    target: Target,
    turn: Turn,
    body: Any,
    *,
    duplicates: Sequence[str] = (),
    size: int = 0,
    may_create: MayCreate = always_allowed,
) -> tuple[PendingWrite, Sequence[str]]:
    """Return the write that replaces the object by that of ``body``, or creates it if its kind allows that."""
    creates = not target.subresource and pipeline.allows_create_on_update(target.rt)
    context = context_of(target, creates=creates)
    decode = partial(_decoded, target, context=context, duplicates=duplicates, create=False)
    _, fresh_copy, warnings = await _decode(target, turn, body, size, decode)

    def change(old: Entry, turn: Turn) -> Awaitable[Proposal]:
        return preparation.update(target, old, lambda _: fresh_copy(), context, turn, size)

    made = Creation(object=fresh_copy, context=context, may_create=may_create) if creates else None
    return PendingWrite(caller=caller, target=target, change=change, creation=made, size=size, turn=turn), warnings


def patching(
    preparation: Preparation,
    caller: Caller,
    target: Target,
    turn: Turn,
    content_type: str,
    body: bytes,
    *,
    force: bool = False,
    may_create: MayCreate = always_allowed,
) -> tuple[PendingWrite, Sequence[str]]:
    """Return the write that applies a patch, and its warnings, which are there once it is prepared.

    A server-side apply creates a missing object, and with ``force`` takes fields from their owners.
    """
    applies = content_type == APPLY_YAML
    warnings: list[str] = []
    context = context_of(target, patches=True, applies=applies, force=force)

    def patched(old: Entry) -> dict[str, Any]:
        base = tracking.seen_by_apply(context) or old.object()
        new, warnings[:] = patches.apply_patch(target.rt, base, content_type, body, context)
        return new

    def change(old: Entry, turn: Turn) -> Awaitable[Proposal]:
        return preparation.update(target, old, patched, context, turn, len(body))

    made = None
    if applies and (not target.subresource or _reads_before_missing(target)):
        creating = context_of(target, creates=True, applies=True, force=force)

        def applied() -> dict[str, Any]:
            obj, warnings[:] = patches.apply_new(target.rt, body, creating)
            if target.subresource:
                raise status.not_found(target.rt, target.name)
            return obj

        made = Creation(object=applied, context=creating, may_create=may_create)
    check = partial(check_syntax, content_type, body)
    write = PendingWrite(
        caller=caller, target=target, change=change, creation=made, check_sent=check, size=len(body), turn=turn
    )
    return write, warnings


def deletion(
    preparation: Preparation,
    caller: Caller,
    target: Target,
    turn: Turn,
    options: DeleteOptions,
    *,
    admitted: bool = False,
    collection: bool = False,
) -> PendingWrite:
    """Return the write that deletes an object, or marks it. ``admitted``, ``collection``: as in Writes.delete."""
    change = partial(preparation.delete, target, options=options, admitted=admitted, collection=collection)
    return PendingWrite(caller=caller, target=target, change=change, deletes=True, turn=turn)


Decoded = tuple[dict[str, Any], MakeObject, list[str]]


async def _decode(target: Target, turn: Turn, body: Any, size: int, decode: Callable[[Any], Decoded]) -> Decoded:
    """Decode a body. If it is small, and its defaults make it large, begin again in the thread."""
    if target.rt.custom is None or not turn.is_small(size):
        return await turn.run(size, decode, body)
    sent = repeatedly(body)
    token = ALLOWANCE.set(OnLoop(turn))
    try:
        return decode(sent())
    except NeedsThread as missing:
        await missing.resolve()
    finally:
        ALLOWANCE.reset(token)
    await turn.begin(size)
    return await turn.run(size, decode, sent())


def _decoded(target: Target, body: Any, *, context: WriteContext, duplicates: Sequence[str], create: bool) -> Decoded:
    """Return (the object of a body, a function that returns fresh copies of it, warnings)."""
    obj, warnings = pipeline.decode_object(
        target.rt, body, context, duplicates=duplicates, create=create, note=target.note_sent
    )
    return obj, repeatedly(obj), warnings


def _reads_before_missing(target: Target) -> bool:
    """Return whether an apply to a subresource of an absent object shows errors of its configuration first.

    Kubernetes looks for the object first, unless an update could create it.
    """
    return target.subresource != pipeline.SCALE and pipeline.allows_create_on_update(target.rt)
