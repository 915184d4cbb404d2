"""The pending writes of requests: how each verb makes or changes an object, for the loop that carries writes out.

``preparation``: the rules and admission that the write passes, on the views or on an overlay (together.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from kubechronicle.actors.evaluation import NeedsThread, OnLoop
from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.writing.pending_write import Creation, PendingWrite
from kubechronicle.actors.writing.preparation import MakeObject, MayCreate, Preparation, Proposal, always_allowed
from kubechronicle.actors.writing.targets import Caller, Target, context_of, with_name_suffix
from kubechronicle.api.errors import status
from kubechronicle.api.meta.encoding import repeatedly
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import pipeline, tracking
from kubechronicle.api.pipeline.patching import APPLY_YAML, check_syntax
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.values.allowance import ALLOWANCE
from kubechronicle.eventlog.entries import Entry


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
        new, warnings[:] = pipeline.apply_patch(target.rt, base, content_type, body, context)
        return new

    def change(old: Entry, turn: Turn) -> Awaitable[Proposal]:
        return preparation.update(target, old, patched, context, turn, len(body))

    made = None
    if applies and (not target.subresource or _reads_before_missing(target)):
        creating = context_of(target, creates=True, applies=True, force=force)

        def applied() -> dict[str, Any]:
            obj, warnings[:] = pipeline.apply_new(target.rt, body, creating)
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
