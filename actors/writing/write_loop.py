"""The loop of every write: prepare, commit, and start over while other writes come first (see writes.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Any, Final, TypeAlias

import trio

from kubechronicle.actors.admission import namespace_lifecycle
from kubechronicle.actors.admission.chain import CREATE, DELETE, UPDATE, AdmissionChain
from kubechronicle.actors.errors import ActorCrashed
from kubechronicle.actors.external_answers import retry_with_answers
from kubechronicle.actors.large_work import LARGE_BYTES, Turn
from kubechronicle.actors.reading.conversions import Conversions
from kubechronicle.actors.reading.converted_reads import needs_webhook
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.actors.writing.preparation import (
    Preparation,
    Proposal,
    Release,
    deletion_of,
    kept_object,
    transaction_for,
)
from kubechronicle.actors.writing.requests import PendingWrite, Written
from kubechronicle.actors.writing.several_databases import NAMESPACES, commit_separately, namespace_now
from kubechronicle.actors.writing.targets import Caller, Target
from kubechronicle.api.errors import status
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.encoding import encode_custom, encode_stored
from kubechronicle.api.pipeline.conversion import converting_by
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import UNREADABLE, Describe, Entry, entry_of
from kubechronicle.eventlog.errors import LogUnavailable
from kubechronicle.eventlog.records import Key, Operation, Record, Rejected, Transaction, Who
from kubechronicle.eventlog.request_parts import CURRENT, LOG, timed

# -- key locks ---------------------------------------------------------------------------------------------------------
#
# Locks on the keys that several writes of this replica change: besides their own, or after one came before the other.
#
# Every new pod charges the ResourceQuota of its namespace. Without a lock, a hundred simultaneous creations would be
# prepared on the same revision of the quota; the log would reject ninety-nine, to be prepared again. The locks only
# save that work: they say nothing about other replicas, and the log still checks every revision.
#
# A write that was prepared on an older state than the log's queues for the lock of its own key from then on. So a
# hundred patches of one object need two attempts each, and none of them has to give up.
#
# Keys are locked in sorted order, so two writes that need the same two keys never deadlock. A write that waits for an
# answer from outside gives its locks back meanwhile.


class KeyLocks:
    """One lock for each key in use; ``len`` is their number."""

    def __init__(self) -> None:
        self._locks: dict[Key, trio.Lock] = {}

    def hold(self, keys: Sequence[Key], *, deadline: float) -> HeldLocks:
        """Hold the locks of ``keys``, each listed once, during the block.

        LogUnavailable: the deadline (trio time) passed first, and nothing happened.
        """
        return HeldLocks(self._locks, sorted(keys), deadline)

    def __len__(self) -> int:
        return len(self._locks)


class HeldLocks:
    """The locks of one write."""

    __slots__ = ("_deadline", "_held", "_keys", "_locks")

    def __init__(self, locks: dict[Key, trio.Lock], keys: Sequence[Key], deadline: float) -> None:
        self._locks, self._keys, self._deadline = locks, keys, deadline
        self._held: list[Key] = []

    async def take(self) -> None:
        """Take all locks. LogUnavailable: the deadline passed first; some may be held."""
        for key in self._keys:
            lock = self._locks.setdefault(key, trio.Lock())
            with trio.move_on_at(self._deadline) as waiting:
                await lock.acquire()
            if waiting.cancelled_caught:
                raise LogUnavailable("the deadline passed before the change was sent")
            self._held.append(key)

    def release(self) -> None:
        """Give back the locks that are held."""
        while self._held:
            key = self._held.pop()
            lock = self._locks[key]
            lock.release()
            if not lock.locked():  # no task waits: trio passes a released lock to the next waiter at once
                self._locks.pop(key, None)

    async def __aenter__(self) -> None:
        try:
            await self.take()
        except BaseException:
            self.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


# -- write loop --------------------------------------------------------------------------------------------------------

_NOTHING: Final = nullcontext()
UNCHANGED: Final = Outcome.UNCHANGED

IsStale: TypeAlias = "Callable[[Key, int], Awaitable[bool]]"
"""Return whether the object's row of a revision would be stored in another form today: with another key."""

MAX_ATTEMPTS = 64
"""Attempts of one write while others keep changing the object. The deadline bounds them too, as in the etcd3 store."""


class WriteLoop:
    """Carries writes out; one for all verbs."""

    def __init__(
        self,
        *,
        reads: Reads,
        actors: ResourceActors,
        admission: AdmissionChain,
        describe: Describe,
        preparation: Preparation,
        conversions: Conversions | None = None,
        is_stale: IsStale | None = None,
    ) -> None:
        """``is_stale``: None if nothing is encrypted."""
        self._reads = reads
        self._actors = actors
        self._admission = admission
        self._describe = describe
        self._preparation = preparation
        self._conversions = conversions
        self._is_stale = is_stale
        self._key_locks = KeyLocks()

    async def carry_out(self, write: PendingWrite) -> Written:
        """Prepare and commit a write, and start over while other writes come first."""
        turn = write.turn
        turn.begin_decision(write.caller.deadline)
        try:
            if write.target.rt.custom is None:
                return await self._attempts(write)
            with self.converting(write.target.rt):
                return await self._attempts(write)
        finally:
            turn.end_decision()
            if write.caller.turn is None:
                turn.end()

    def converting(self, rt: ResourceType) -> AbstractContextManager[None]:
        """Return the context in which rules may convert objects of the type by its webhook, if it has one."""
        if self._conversions is None or not needs_webhook(rt):
            return _NOTHING
        return converting_by(self._conversions.recall)

    async def _attempts(self, write: PendingWrite) -> Written:
        caller, target, turn = write.caller, write.target, write.turn
        write.rechecked, write.names_tried = False, 0
        is_in_other_log = self._reads.of(target.rt.resource) is not self._reads
        queues = False
        for _ in range(MAX_ATTEMPTS):
            old = self._reads.peek(*write.key) if write.change is not None else None
            size = max(write.size, len(old.json)) if old is not None else write.size
            if not turn.is_small(size):
                await turn.begin(size)  # before the locks: those with a place may wait for them
            keys = self._keys_to_lock(write)
            if queues:
                keys = sorted({*keys, write.key})
            async with self.hold(keys, turn):
                if queues:
                    await self._reads.wait_current(target.rt.resource)  # those before it in the queue have written
                await self.prepare(write)
                proposal = write.proposal
                if proposal is not None and proposal.prepared.outcome is UNCHANGED:
                    proposal = await self._rewritten(write, proposal)
                if proposal is not None and not target.dry_run and proposal.prepared.outcome is not UNCHANGED:
                    transaction = await self.transaction(target, proposal, write.old, caller.who, turn, size)
                    namespace = self._reads.peek(NAMESPACES, "", target.namespace) if is_in_other_log else None
                    if is_in_other_log and len(transaction.changes) > 1:
                        outcome = await commit_separately(self._reads, transaction, partial(self.commit, caller))
                    else:
                        outcome = await self.commit(caller, transaction)
                    if not isinstance(outcome, Rejected):
                        record = outcome[transaction.main]
                        if write.old is None and is_in_other_log:
                            await self._undo_if_namespace_changed(caller, target.rt, record, namespace)
                        elif write.old is None:
                            await self.undo_if_namespace_ended(caller, target.rt, record)
                        return self.stored(write, proposal.prepared, record)
                    write.conflict = outcome
            queues = queues or (write.change is not None and write.conflict is not None)
            written = await self._catch_up(write)
            if written is not None:
                return written
        raise status.conflict(target.rt, write.key.name)

    async def transaction(
        self,
        target: Target,
        proposal: Proposal,
        old: Entry | None,
        who: Who,
        turn: Turn,
        size: int,
        release: Release | None = None,
    ) -> Transaction:
        """Return the transaction of a proposal. ``release``: another one than that of the admission chain."""
        kept = kept_object(proposal.prepared)
        # Up to LARGE_BYTES, the encoding takes less than the way to the thread and back.
        encode = encode_stored if target.rt.custom is None else encode_custom
        body = encode(kept) if size <= LARGE_BYTES and not turn.slow else await turn.run(size, encode, kept)
        return transaction_for(target, proposal, old, body, release or self._admission.release, who)

    async def _rewritten(self, write: PendingWrite, proposal: Proposal) -> Proposal:
        """Return a proposal that stores the unchanged object again, if it would be encrypted otherwise today.

        So an empty patch moves an object to a new key, as in kube-apiserver.
        """
        old, is_stale = write.old, self._is_stale
        if is_stale is None or old is None or write.deletes or write.target.dry_run:
            return proposal
        if not await is_stale(old.key, old.revision):
            return proposal
        obj = old.object()
        del obj["metadata"]["resourceVersion"]
        prepared = proposal.prepared
        again = Prepared(
            Outcome.STORE, obj, old.revision, warnings=prepared.warnings, mark=old.mark, requested=prepared.requested
        )
        write.proposal = Proposal(again)
        return write.proposal

    def hold(self, keys: Sequence[Key], turn: Turn) -> AbstractAsyncContextManager[None]:
        """Return the context in which keys are locked, except while the request waits for answers from outside."""
        if not keys:
            turn.locks = None
            return _NOTHING
        turn.locks = held = self._key_locks.hold(keys, deadline=turn.deadline)
        return held

    def keys_to_lock(self, writes: Sequence[PendingWrite]) -> Sequence[Key]:
        """Return the keys to lock for several writes."""
        alike = {(write.target.rt.resource, write.target.namespace, self._operation(write)): write for write in writes}
        admission = (key for write in alike.values() for key in self._admission_keys(write))
        return sorted({*admission, *(key for write in writes for key in write.locks)})

    def _keys_to_lock(self, write: PendingWrite) -> Sequence[Key]:
        """Return the keys of the companion changes to expect: those of the admission plugins and ``write.locks``."""
        keys = self._admission_keys(write)
        return sorted({*keys, *write.locks}) if write.locks else keys

    def _admission_keys(self, write: PendingWrite) -> Sequence[Key]:
        target = write.target
        return self._admission.locked_keys(target.rt, self._operation(write), target.namespace)

    def _operation(self, write: PendingWrite) -> str:
        if write.creation is not None and (write.change is None or self._reads.peek(*write.key) is None):
            return CREATE
        return DELETE if write.deletes else UPDATE

    def prepare(self, write: PendingWrite, preparation: Preparation | None = None) -> Awaitable[None]:
        """Prepare the write on this replica's view: as a change of the existing object, or as a creation.

        Again while its rules lack an answer from outside. ``preparation``: another one than the loop's, for creations;
        changes have theirs.
        """
        return retry_with_answers(partial(self._prepare, write, preparation), write.turn.wait)

    async def _prepare(self, write: PendingWrite, preparation: Preparation | None) -> None:
        target = write.target
        write.begin_attempt(self._reads.seen(target.rt.resource))
        try:
            if write.change is not None:
                write.old = self._reads.peek(target.rt.resource, target.namespace, target.name)
                if write.old is not None and write.old.labels is UNREADABLE:
                    write.old = await self._reads.readable(write.old)
                if write.old is not None:
                    write.proposal = await write.change(write.old, write.turn)
                    return
                metadata.match_name_syntax(target.name)
            creation = write.creation
            if creation is None:
                if write.check_sent is not None:
                    await write.turn.run(write.size, write.check_sent)
                raise status.not_found(target.rt, target.name)
            write.proposal = await (preparation or self._preparation).create(
                target, creation.object, creation.context, creation.may_create, write.turn, write.size
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
        if proposal is not None and old is not None and dry_run and proposal.prepared.outcome is not UNCHANGED:
            shown = with_revision(proposal.prepared.object, old.revision)
            return Written(object=shown, prepared=proposal.prepared, before=old)
        applied = await self._reads.wait_current(write.key.resource)
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

    async def commit(self, caller: Caller, transaction: Transaction) -> tuple[Record, ...] | Rejected:
        """Return the committed records, or the log's rejection. Raises the errors of the actor and the appender."""
        while True:
            commit = self._actors.begin(transaction, deadline=caller.deadline)
            parts = CURRENT.get()
            if parts is None or parts.spans is not None:
                with timed(LOG, "Append to the log"):
                    outcome = await commit.wait(limited=caller.limited)
            else:
                began = perf_counter()
                try:
                    outcome = await commit.wait(limited=caller.limited)
                finally:
                    parts.add(LOG, perf_counter() - began)
            if not isinstance(outcome, Exception):
                return outcome
            # A crashed actor has submitted nothing; its next incarnation decides the transaction.
            if not isinstance(outcome, ActorCrashed) or trio.current_time() >= caller.deadline:
                raise outcome

    async def undo_if_namespace_ended(self, caller: Caller, rt: ResourceType, record: Record) -> None:
        """Delete a created object again if its namespace had begun to end before, as only the newest views show."""
        if not self._admission.guards_namespaces:
            return
        await self._undo(caller, record, namespace_lifecycle.too_late(rt, record, self._reads.peek))

    async def _undo_if_namespace_changed(
        self, caller: Caller, rt: ResourceType, record: Record, before: Entry | None
    ) -> None:
        """As ``undo_if_namespace_ended``, for an object in another log than its namespace, which was ``before``."""
        if rt.namespaced and self._admission.guards_namespaces:
            now = await namespace_now(self._reads, record.key.namespace)
            await self._undo(caller, record, namespace_lifecycle.changed(rt, record.key, before, now))

    async def _undo(self, caller: Caller, record: Record, rejection: status.StatusError | None) -> None:
        if rejection is None:
            return
        deletion = deletion_of(record, entry_of(record, self._describe), self._admission.release, caller.who)
        if not isinstance(await self.commit(caller, deletion), Rejected):
            raise rejection
        # Otherwise the namespace's controller has met the object already: it was created, and is being cleaned up.

    def stored(self, write: PendingWrite, prepared: Prepared, record: Record) -> Written:
        if record.operation is Operation.DELETE and not write.deletes:
            # The update removed the last finalizer. The answer is the object as the update left it.
            return Written(object=prepared.object, prepared=prepared, before=write.old)
        entry = self._reads.peek(*record.key)
        if entry is None or entry.revision != record.revision:
            entry = entry_of(record, self._describe)
        return Written(entry=entry, prepared=prepared, before=write.old, created=write.old is None)


def with_revision(obj: dict[str, Any], revision: int) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}
