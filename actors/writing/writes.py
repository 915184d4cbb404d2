"""Writes: the one way to change objects, for clients and for the server's own loops.

Every write runs through one loop (``Writes._carry_out``):

    lock the keys of companion changes      quotas, budgets; most writes have none
    prepare                                 rules and admission, on this replica's view
    commit                                  through the resource actor; the log has the last word
    otherwise catch up and start over       another write came first, or the view was out of date

This replica's view may lag behind other replicas. A rejection that rests on it (not found, conflict, invalid, an
unchanged object) therefore counts only after a consistent read has shown nothing newer:

    view: a at 7, another replica wrote 8        PUT a (no resourceVersion)
    prepared on 7 → the log rejects it, actual 8 → the view catches up → prepared on 8 → committed as 9

A client that sends a resourceVersion gets its 409 from the preparation, on the newest state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import trio
from msgspec import structs

from kubechronicle.actors.admission import namespace_lifecycle
from kubechronicle.actors.admission.chain import CREATE, DELETE, UPDATE, AdmissionChain
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.errors import ActorCrashed
from kubechronicle.actors.external_answers import decide_with_answers, retry_with_answers
from kubechronicle.actors.reading.reads import Listing, Reads, Selection
from kubechronicle.actors.resource_actor import Commit
from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.actors.writing.key_locks import KeyLocks
from kubechronicle.actors.writing.pending_write import Creation, PendingWrite
from kubechronicle.actors.writing.pending_write import Written as Written
from kubechronicle.actors.writing.preparation import MayCreate, Preparation, Prepare, Proposal, always_allowed
from kubechronicle.actors.writing.targets import Caller as Caller
from kubechronicle.actors.writing.targets import Target as Target
from kubechronicle.actors.writing.targets import context_of, requested_by, with_name_suffix
from kubechronicle.actors.writing.transactions import deletion_of, transaction_for, transaction_of
from kubechronicle.api.errors import status
from kubechronicle.api.meta.encoding import repeatedly
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.patching import APPLY_YAML
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Describe, Entry, entry_of
from kubechronicle.eventlog.records import Key, Operation, Record, Rejected, Transaction

MAX_ATTEMPTS = 64
"""Attempts of one write while others keep changing the object. The deadline bounds them too, as in the etcd3 store."""

COLLECTION_CHUNK = 64
"""Objects of a deletecollection that are committed at once."""

Compute = Callable[[dict[str, Any]], dict[str, Any]]
"""Return the new object from the stored one, in the storage version. Called again if the object has changed."""


class Writes:
    def __init__(self, *, reads: Reads, actors: ResourceActors, admission: AdmissionChain, describe: Describe) -> None:
        self._reads = reads
        self._actors = actors
        self._admission = admission
        self._describe = describe
        self._preparation = Preparation(reads, admission)
        self._key_locks = KeyLocks()

    # -- the verbs ----------------------------------------------------------------------------------------------------

    async def create(self, caller: Caller, target: Target, body: Any, *, duplicates: Sequence[str] = ()) -> Written:
        """POST ``body``, the decoded JSON value the client sent. StatusError 4xx."""
        target = requested_by(caller, target)
        context = context_of(target, creates=True)
        obj, warnings = pipeline.decode_object(target.rt, body, context, duplicates=duplicates, create=True)
        creation = Creation(object=repeatedly(obj), context=with_name_suffix(context, obj))
        written = await self._write(PendingWrite(caller=caller, target=target, creation=creation))
        return _with_warnings(written, warnings, target)

    async def update(
        self,
        caller: Caller,
        target: Target,
        body: Any,
        *,
        duplicates: Sequence[str] = (),
        may_create: MayCreate = always_allowed,
    ) -> Written:
        """PUT: replace the object, or create it if its kind allows that."""
        target = requested_by(caller, target)
        creates = not target.subresource and pipeline.allows_create_on_update(target.rt)
        context = context_of(target, creates=creates)
        obj, warnings = pipeline.decode_object(target.rt, body, context, duplicates=duplicates, create=False)
        fresh_copy = repeatedly(obj)

        def change(old: Entry) -> Proposal:
            return self._preparation.update(target, old, fresh_copy(), context)

        creation = Creation(object=fresh_copy, context=context, may_create=may_create) if creates else None
        written = await self._write(PendingWrite(caller=caller, target=target, change=change, creation=creation))
        return _with_warnings(written, warnings, target)

    async def patch(
        self,
        caller: Caller,
        target: Target,
        content_type: str,
        body: bytes,
        *,
        force: bool = False,
        may_create: MayCreate = always_allowed,
    ) -> Written:
        """PATCH of any type, applied to the newest state.

        A server-side apply creates a missing object, and with ``force`` takes fields from their owners.
        """
        target = requested_by(caller, target)
        applies = content_type == APPLY_YAML
        warnings: Sequence[str] = ()

        def change(old: Entry) -> Proposal:
            nonlocal warnings
            context = context_of(target, applies=applies, force=force)
            new, warnings = pipeline.apply_patch(target.rt, old.object(), content_type, body, context)
            return self._preparation.update(target, old, new, context)

        creation = None
        if applies and not target.subresource:
            context = context_of(target, creates=True, applies=True, force=force)

            def applied() -> dict[str, Any]:
                nonlocal warnings
                obj, warnings = pipeline.apply_new(target.rt, body, context)
                return obj

            creation = Creation(object=applied, context=context, may_create=may_create)
        written = await self._write(PendingWrite(caller=caller, target=target, change=change, creation=creation))
        return _with_warnings(written, warnings, target)

    async def edit(self, caller: Caller, target: Target, compute: Compute) -> Written:
        """Update an object by a function of the stored one, for the server itself."""
        target = requested_by(caller, target)

        def change(old: Entry) -> Proposal:
            return self._preparation.update(target, old, compute(old.object()), context_of(target))

        written = await self._write(PendingWrite(caller=caller, target=target, change=change))
        return _with_warnings(written, (), target)

    async def rewrite(self, caller: Caller, target: Target, compute: Compute, *, admitted: Any) -> Written:
        """Change a stored object without the rules of an update, as a binding does.

        ``admitted``: the body the client sent, which admission receives as a creation.
        """
        target = requested_by(caller, target)
        await self.admit(caller, target, admitted)

        def change(old: Entry) -> Proposal:
            new = compute(old.object())
            new["metadata"].pop("resourceVersion", None)
            return Proposal(Prepared(Outcome.STORE, new, old.revision))

        return await self._write(PendingWrite(caller=caller, target=target, change=change))

    async def admit(self, caller: Caller, target: Target, sent: Any) -> None:
        """Pass the body of a subresource that is not stored under its own name through admission, as a creation."""
        attempt = partial(self._preparation.admit, requested_by(caller, target), sent)
        await retry_with_answers(attempt, deadline=caller.deadline)

    async def propose(
        self, caller: Caller, target: Target, change: Prepare, *, deletes: bool = False, locks: Sequence[Key] = ()
    ) -> Written:
        """Commit the change of a stored object, with its companion changes, that ``change`` has prepared.

        ``change`` is called again if any of these objects has changed. Writes with the same ``locks`` take turns.
        """
        return await self._write(
            PendingWrite(caller=caller, target=target, change=change, deletes=deletes, locks=locks)
        )

    async def delete(self, caller: Caller, target: Target, options: DeleteOptions) -> Written:
        """DELETE one object: at once, or by marking it for deletion."""
        target = requested_by(caller, target)
        write = self._deletion(caller, target, options)
        written = await self._write(write)
        if write.proposal is not None and write.proposal.then_delete and not target.dry_run:
            # The mark has changed the revision, so the rest must not demand the old one.
            rest = replace(options, precondition_resource_version=None)
            with ignore_not_found():
                await self._write(self._deletion(caller, target, rest))
        return written

    def _deletion(self, caller: Caller, target: Target, options: DeleteOptions) -> PendingWrite:
        change = partial(self._preparation.delete, target, options=options)
        return PendingWrite(caller=caller, target=target, change=change, deletes=True)

    async def delete_collection(
        self, caller: Caller, target: Target, selection: Selection, options: DeleteOptions, **listing: Any
    ) -> Listing:
        """DELETE the selected objects in key order, and return them as listed before.

        An object that vanishes meanwhile counts as deleted. ``listing``: as in Reads.list.
        """
        target = requested_by(caller, target)
        listed = await self._reads.list(target.rt, selection, **listing)
        for start in range(0, len(listed.entries), COLLECTION_CHUNK):
            await self._delete_chunk(caller, target, listed.entries[start : start + COLLECTION_CHUNK], options)
        return listed

    async def _delete_chunk(
        self, caller: Caller, target: Target, entries: Sequence[Entry], options: DeleteOptions
    ) -> None:
        """Prepare the deletions, pass all to the actor, then wait for all: one batch, with events in key order."""
        begun: list[tuple[Target, Commit, bool]] = []
        for entry in entries:
            one = structs.replace(target, namespace=entry.key.namespace, name=entry.key.name)
            proposal = await decide_with_answers(partial(self._preparation.delete, one, entry, options))
            if not target.dry_run and proposal.prepared.outcome is not Outcome.UNCHANGED:
                transaction = transaction_for(one, proposal, entry, self._admission.release, caller.who)
                begun.append((one, self._actors.begin(transaction, deadline=caller.deadline), proposal.then_delete))
        for one, commit, then_delete in begun:
            outcome = await commit.wait(limited=caller.limited)
            if isinstance(outcome, Exception):
                raise outcome
            if then_delete or isinstance(outcome, Rejected):
                with ignore_not_found():
                    await self.delete(caller, one, options)

    async def commit_own_changes(self, caller: Caller, changes: Sequence[CompanionChange]) -> bool:
        """Commit the server's own bookkeeping without rules and admission. False: an object has changed meanwhile."""
        return not isinstance(await self._commit(caller, transaction_of(changes, caller.who)), Rejected)

    # -- the loop of every write --------------------------------------------------------------------------------------

    def _write(self, write: PendingWrite) -> Awaitable[Written]:
        """Carry a write out. While it lacks an answer from outside, resolve that and start over."""
        return retry_with_answers(partial(self._carry_out, write), deadline=write.caller.deadline)

    async def _carry_out(self, write: PendingWrite) -> Written:
        """Prepare and commit a write, and start over while other writes come first.

        NeedsExternalAnswer leaves from the preparation, so nothing is committed and no key stays locked.
        """
        caller, target = write.caller, write.target
        write.rechecked, write.names_tried = False, 0
        for _ in range(MAX_ATTEMPTS):
            async with self._key_locks.hold(self._keys_to_lock(write), deadline=caller.deadline):
                await self._prepare(write)
                proposal = write.proposal
                if proposal is not None and not target.dry_run and proposal.prepared.outcome is not Outcome.UNCHANGED:
                    transaction = transaction_for(target, proposal, write.old, self._admission.release, caller.who)
                    outcome = await self._commit(caller, transaction)
                    if not isinstance(outcome, Rejected):
                        if write.old is None:
                            await self._undo_if_namespace_ended(caller, target.rt, outcome[0])
                        return self._stored(write, proposal.prepared, outcome[0])
                    write.conflict = outcome
            written = await self._catch_up(write)
            if written is not None:
                return written
        raise status.conflict(target.rt, write.key.name)

    def _keys_to_lock(self, write: PendingWrite) -> Sequence[Key]:
        """Return the keys of the companion changes to expect: those of the admission plugins and ``write.locks``."""
        target = write.target
        operation = DELETE if write.deletes else UPDATE
        if write.creation is not None and (write.change is None or self._reads.peek(*write.key) is None):
            operation = CREATE
        keys = self._admission.locked_keys(target.rt, operation, target.namespace)
        return sorted({*keys, *write.locks}) if write.locks else keys

    async def _prepare(self, write: PendingWrite) -> None:
        """Prepare the write on this replica's view: as a change of the existing object, or as a creation."""
        target = write.target
        write.begin_attempt(self._reads.applied)
        try:
            if write.change is not None:
                write.old = self._reads.peek(target.rt.resource, target.namespace, target.name)
                if write.old is not None:
                    write.proposal = write.change(write.old)
                    return
            creation = write.creation
            if creation is None:
                raise status.not_found(target.rt, target.name)
            write.proposal = await self._preparation.create(
                target, creation.object(), creation.context, creation.may_create
            )
        except status.StatusError as error:
            if write.change is None:
                raise  # the preparation of a creation has looked at the newest state itself
            write.error = error

    async def _catch_up(self, write: PendingWrite) -> Written | None:
        """Bring the view up to date after an attempt without a commit, and conclude the write. None: start over.

        StatusError: the rejection holds on the newest state.
        """
        old, proposal, dry_run = write.old, write.proposal, write.target.dry_run
        if proposal is not None and old is not None and dry_run and proposal.prepared.outcome is not Outcome.UNCHANGED:
            return Written(object=_with_revision(proposal.prepared.object, old.revision), prepared=proposal.prepared)
        applied = await self._reads.wait_consistent()
        newest = self._reads.peek(*write.key)
        if proposal is not None and old is None:
            if newest is not None or (write.conflict is not None and write.conflict.key == write.key):
                write.handle_taken_name(newest)
            elif dry_run:
                return Written(object=proposal.prepared.object, prepared=proposal.prepared, created=True)
            return None
        if write.conflict is not None or newest is not old:
            return None
        if write.error is None:
            return Written(entry=old, prepared=None if proposal is None else proposal.prepared)  # unchanged
        if applied > write.seen and not write.rechecked:
            write.rechecked = True  # the rejection may rest on other objects, which may have changed
            return None
        raise write.error

    async def _commit(self, caller: Caller, transaction: Transaction) -> tuple[Record, ...] | Rejected:
        """Return the committed records, or the log's rejection. Raises the errors of the actor and the appender."""
        while True:
            commit = self._actors.begin(transaction, deadline=caller.deadline)
            outcome = await commit.wait(limited=caller.limited)
            if not isinstance(outcome, Exception):
                return outcome
            # A crashed actor has submitted nothing; its next incarnation decides the transaction.
            if not isinstance(outcome, ActorCrashed) or trio.current_time() >= caller.deadline:
                raise outcome

    async def _undo_if_namespace_ended(self, caller: Caller, rt: ResourceType, record: Record) -> None:
        """Delete a created object again if its namespace had begun to end before, as only the newest views show."""
        rejection = namespace_lifecycle.too_late(rt, record, self._reads.peek)
        if rejection is None:
            return
        deletion = deletion_of(record, entry_of(record, self._describe), self._admission.release, caller.who)
        if not isinstance(await self._commit(caller, deletion), Rejected):
            raise rejection
        # Otherwise the namespace's controller has met the object already: it was created, and is being cleaned up.

    def _stored(self, write: PendingWrite, prepared: Prepared, record: Record) -> Written:
        if record.operation is Operation.DELETE and not write.deletes:
            # The update removed the last finalizer. The answer is the object as the update left it.
            return Written(object=prepared.object, prepared=prepared)
        entry = self._reads.peek(*record.key)
        if entry is None or entry.revision != record.revision:
            entry = entry_of(record, self._describe)
        return Written(entry=entry, prepared=prepared, created=write.old is None)


@contextmanager
def ignore_not_found() -> Iterator[None]:
    """Suppress a StatusError 404: the object to delete is gone already."""
    try:
        yield
    except status.StatusError as error:
        if error.code != 404:
            raise


def _with_warnings(written: Written, warnings: Sequence[str], target: Target) -> Written:
    """Add the warnings of decoding, and those of rules and admission once each, however often they ran."""
    if not warnings and not target.warnings:
        return written
    return structs.replace(written, warnings=[*warnings, *dict.fromkeys(target.warnings)])


def _with_revision(obj: dict[str, Any], revision: int) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}
