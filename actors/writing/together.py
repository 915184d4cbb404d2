"""Several writes in one transaction: all are committed, with consecutive revisions, or none is.

    lock the keys of companion changes      of all writes, in sorted order, so that nobody deadlocks
    prepare one after the other             each on the views and on the changes before it
    commit one transaction                  through the resource actor of the first object; the log has the last word
    otherwise catch up and start over       another write came first, or the view was out of date

Only the actor of the first object decides when the transaction goes to the log. The actors of the other objects are not
asked, as for companion changes: two actors never wait for each other. The log compares the expected revision of every
key in the transaction itself. A write of another actor that came first makes the log reject the whole transaction; one
that comes later is rejected and prepared again.

    actor of deployments    T(deployment a at 7, configmap b at 8)   → the log
    actor of configmaps     W(configmap b at 8)                      → the log
    log                     W commits b as 9; T expects b at 8 → rejected whole, prepared again on b at 9
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import trio
from msgspec import structs

from kubechronicle.actors.admission.chain import AdmissionChain, AdmissionState
from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.writing.preparation import MayCreate, Preparation
from kubechronicle.actors.writing.requests import PendingWrite, Written, creation, deletion, patching, replacement
from kubechronicle.actors.writing.several_databases import spanning_error
from kubechronicle.actors.writing.targets import Caller, Target, requested_by
from kubechronicle.actors.writing.write_loop import MAX_ATTEMPTS, WriteLoop, with_revision
from kubechronicle.api.errors import status
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline.pipeline import Outcome
from kubechronicle.eventlog.entries import Describe, Entry, entry_of
from kubechronicle.eventlog.records import Change, Key, Operation, Record, Rejected, Transaction

# -- overlay -----------------------------------------------------------------------------------------------------------
#
# An overlay of the views: the changes of a transaction that is being prepared, as if they were committed already.
#
#     transaction: create namespace a, create configmap a/b (charges quota a/q), create configmap a/c (charges a/q)
#     overlay:     namespace a is there for both configmaps; the second charge adds to the first
#
# The revision of each entry is unique among all entries. So a result that is kept by an object's revision is never
# taken for that of another state. Several changes of a key are folded into one, with the revision that the first one
# expects: the log will compare this one.

_REVISIONS: Final = itertools.count(2**62)
"""Revisions of the entries of all overlays, above all of the log."""
TWICE: Final = "changes of {}/{} cannot be committed together: one deletes it, and another creates it again"


class Overlay:
    """See the head of this file. ``changes``: by key, in the order in which the keys were first changed."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._entries: dict[Key, Entry | None] = {}
        self.changes: dict[Key, Change] = {}

    def clear(self) -> None:
        """Forget everything, for another attempt."""
        self._entries.clear()
        self.changes.clear()

    def add(self, changes: Iterable[Change]) -> None:
        """Add the changes of one write. StatusError 409: a key would be deleted and created again."""
        for change in changes:
            first = self.changes.get(change.key)
            folded = change if first is None else _folded(first, change)
            if folded is None:
                del self.changes[change.key]
            else:
                self.changes[change.key] = folded
            is_there = change.operation is not Operation.DELETE
            self._entries[change.key] = self._entry(change) if is_there else None

    def over(self, state: AdmissionState) -> AdmissionState:
        """Return the state with these changes. Nothing tells of further ones."""
        peek, entries = state.peek, state.entries

        def overlaid_peek(resource: str, namespace: str, name: str) -> Entry | None:
            key = Key(resource, namespace, name)
            return self._entries[key] if key in self._entries else peek(resource, namespace, name)

        def overlaid_entries(resource: str, namespace: str) -> Sequence[Entry]:
            found = entries(resource, namespace)
            own = {
                key: entry
                for key, entry in self._entries.items()
                if key.resource == resource and (not namespace or key.namespace == namespace)
            }
            if not own:
                return found
            kept = [own.pop(entry.key, entry) for entry in found]
            return [entry for entry in (*kept, *own.values()) if entry is not None]

        return replace(state, peek=overlaid_peek, entries=overlaid_entries, follow=None)

    def _entry(self, change: Change) -> Entry:
        revision = next(_REVISIONS)
        record = Record(
            revision=revision,
            key=change.key,
            uid=change.uid,
            create_revision=revision,
            version=1,
            previous_revision=0,
            operation=change.operation,
            body=change.body,
            committed_at=datetime.now(UTC),
            decoded=change.decoded,
            mark=change.mark,
        )
        return entry_of(record, self._describe)


def _folded(first: Change, later: Change) -> Change | None:
    """Return two changes of a key as one; None: they cancel each other out. StatusError 409."""
    if first.operation is Operation.DELETE:
        raise status.StatusError(409, "Conflict", TWICE.format(first.key.resource, first.key.name))
    if first.operation is Operation.CREATE:
        if later.operation is Operation.DELETE:
            return None
        return structs.replace(later, operation=Operation.CREATE, expected=0)
    return structs.replace(later, expected=first.expected)


# -- together ----------------------------------------------------------------------------------------------------------

Remove = Callable[[Caller, Target, DeleteOptions], Awaitable[object]]
"""Delete an object (Writes.delete)."""


class WriteResult(NamedTuple):
    """The result of one write. ``deletes``: it was a deletion. ``removed``: its mark was over at once."""

    target: Target
    written: Written
    deletes: bool
    removed: bool


class TransactionFailed(Exception):
    """A write of the transaction was rejected. ``place``: its position."""

    def __init__(self, place: int, error: status.StatusError) -> None:
        super().__init__(error.message)
        self.place, self.error = place, error


class Together:
    """One transaction: add writes with the verbs, then commit. ``remove``: deletes an object whose mark is over.

    ``cause`` of a verb: the revision that its change is a consequence of, 0 for that of the caller.
    """

    def __init__(
        self,
        *,
        reads: Reads,
        loop: WriteLoop,
        admission: AdmissionChain,
        preparation: Preparation,
        describe: Describe,
        remove: Remove,
        caller: Caller,
        turn: Turn,
    ) -> None:
        self._reads = reads
        self._loop = loop
        self._remove = remove
        self._caller = caller
        self._turn = turn
        self._overlay = Overlay(describe)
        self._admission = admission.over(self._overlay.over)
        self._preparation = preparation.over(self._admission)
        self._writes: list[PendingWrite] = []
        self._options: dict[int, DeleteOptions] = {}
        self._warnings: list[Sequence[str]] = []

    # -- the verbs ----------------------------------------------------------------------------------------------------

    async def create(self, target: Target, body: Any, *, size: int, cause: int = 0) -> None:
        """Add a creation. ``body``, ``size``: as in Writes.create. StatusError 4xx."""
        target, caller = requested_by(self._caller, target), self._because(cause)
        self._add(*await creation(self._preparation, caller, target, self._turn, body, size=size))

    async def update(self, target: Target, body: Any, *, size: int, may_create: MayCreate, cause: int = 0) -> None:
        """Add an update, as Writes.update. StatusError 4xx."""
        target, caller = requested_by(self._caller, target), self._because(cause)
        self._add(
            *await replacement(self._preparation, caller, target, self._turn, body, size=size, may_create=may_create)
        )

    def patch(
        self,
        target: Target,
        content_type: str,
        body: bytes,
        *,
        force: bool,
        may_create: MayCreate,
        cause: int = 0,
    ) -> None:
        """Add a patch or a server-side apply, as Writes.patch."""
        target, caller = requested_by(self._caller, target), self._because(cause)
        self._add(
            *patching(
                self._preparation,
                caller,
                target,
                self._turn,
                content_type,
                body,
                force=force,
                may_create=may_create,
            )
        )

    def delete(self, target: Target, options: DeleteOptions, *, cause: int = 0) -> None:
        """Add a deletion, as Writes.delete."""
        target, caller = requested_by(self._caller, target), self._because(cause)
        self._options[len(self._writes)] = options
        self._add(deletion(self._preparation, caller, target, self._turn, options))

    def _because(self, cause: int) -> Caller:
        return structs.replace(
            self._caller, who=structs.replace(self._caller.who, cause=cause or self._caller.who.cause)
        )

    def _add(self, write: PendingWrite, warnings: Sequence[str] = ()) -> None:
        if self._reads.of(write.target.rt.resource) is not self._reads:
            raise spanning_error(write.target.rt.group_resource)
        self._writes.append(write)
        self._warnings.append(warnings)

    def warnings(self) -> list[str]:
        """Return the warnings of decoding, rules and admission."""
        found = [text for warnings in self._warnings for text in warnings]
        return found + [text for write in self._writes for text in write.target.warnings]

    # -- the commit ---------------------------------------------------------------------------------------------------

    async def commit(self) -> Sequence[WriteResult]:
        """Commit the writes, and return their results.

        Raises Failed, StatusError, and the errors of the actor and the appender.
        """
        written = await self._carry_out(self._writes)
        results = []
        for place, (write, each) in enumerate(zip(self._writes, written, strict=True)):
            removed = write.proposal is not None and write.proposal.then_delete
            if removed and not write.target.dry_run:
                await self._remove(
                    write.caller, write.target, replace(self._options[place], precondition_resource_version=None)
                )
            results.append(WriteResult(write.target, each, write.deletes, removed))
        return results

    async def _carry_out(self, writes: Sequence[PendingWrite]) -> Sequence[Written]:
        for write in writes:
            write.rechecked, write.names_tried = False, 0
        self._turn.begin_decision(self._caller.deadline)
        try:
            return await self._attempts(writes)
        finally:
            self._turn.end_decision()

    async def _attempts(self, writes: Sequence[PendingWrite]) -> Sequence[Written]:
        caller, turn, loop = self._caller, self._turn, self._loop
        size = sum(write.size for write in writes)
        for _ in range(MAX_ATTEMPTS):
            if not turn.is_small(size):
                await turn.begin(size)  # before the locks: those with a place may wait for them
            conflict, failed = None, None
            async with loop.hold(loop.keys_to_lock(writes), turn):
                failed = await self._prepare_all(writes)
                if failed is None:
                    _check_keys(writes)
                if failed is None and self._overlay.changes and not writes[0].target.dry_run:
                    outcome = await loop.commit(caller, self._transaction(writes))
                    if not isinstance(outcome, Rejected):
                        return await self._stored(writes, outcome)
                    conflict = outcome
            found = await self._catch_up(writes, failed, conflict)
            if found is not None:
                return found
        raise status.conflict(writes[0].target.rt, writes[0].key.name)

    async def _prepare_all(self, writes: Sequence[PendingWrite]) -> TransactionFailed | None:
        """Prepare the writes, and put their changes into the overlay. Return the first rejection."""
        self._overlay.clear()
        for place, write in enumerate(writes):
            await trio.lowlevel.checkpoint()
            try:
                with self._loop.converting(write.target.rt):
                    await self._loop.prepare(write, self._preparation)
                if write.error is not None:
                    return TransactionFailed(place, write.error)
                proposal = write.proposal
                assert proposal is not None
                if proposal.prepared.outcome is Outcome.UNCHANGED:
                    continue
                size = max(write.size, len(write.old.json) if write.old is not None else 0)
                transaction = await self._loop.transaction(
                    write.target, proposal, write.old, write.caller.who, write.turn, size, self._admission.release
                )
                cause = write.caller.who.cause
                own = 0 if cause == self._caller.who.cause else cause
                self._overlay.add(structs.replace(each, cause=own) if own else each for each in transaction.changes)
            except status.StatusError as error:
                write.error = error
                return TransactionFailed(place, error)
        return None

    def _transaction(self, writes: Sequence[PendingWrite]) -> Transaction:
        """Return one transaction. The first object of the writes decides its actor."""
        changes = self._overlay.changes
        keys = list(changes)
        main = next((keys.index(write.key) for write in writes if write.key in changes), 0)
        return Transaction(changes=tuple(changes.values()), who=self._caller.who, main=main)

    async def _stored(self, writes: Sequence[PendingWrite], records: Sequence[Record]) -> Sequence[Written]:
        by_key = {record.key: record for record in records}
        found = []
        for write in writes:
            assert write.proposal is not None
            record = by_key.get(write.key)
            if record is None:
                found.append(Written(entry=write.old, prepared=write.proposal.prepared))
                continue
            if write.old is None:
                await self._loop.undo_if_namespace_ended(write.caller, write.target.rt, record)
            found.append(self._loop.stored(write, write.proposal.prepared, record))
        return found

    async def _catch_up(
        self, writes: Sequence[PendingWrite], failed: TransactionFailed | None, conflict: Rejected | None
    ) -> Sequence[Written] | None:
        """Bring the view up to date after an attempt without a commit. None: start over. Failed; StatusError."""
        applied = await self._reads.wait_consistent()
        if failed is not None:
            write = writes[failed.place]
            is_current = write.change is None or self._reads.peek(*write.key) is write.old
            if is_current and (write.rechecked or applied <= write.seen):
                raise failed
            write.rechecked = True  # the rejection may rest on other objects, which may have changed
            return None
        for place, write in enumerate(writes):
            newest = self._reads.peek(*write.key)
            is_taken = write.old is None and (
                newest is not None or (conflict is not None and conflict.key == write.key)
            )
            try:
                if is_taken:
                    write.handle_taken_name(newest)
            except status.StatusError as error:
                raise TransactionFailed(place, error) from None
            if is_taken or newest is not write.old:
                return None
        return None if conflict is not None else [_undone(write) for write in writes]


def _undone(write: PendingWrite) -> Written:
    """Return the result of a dry run, or of a write that changes nothing."""
    assert write.proposal is not None
    prepared, old = write.proposal.prepared, write.old
    if prepared.outcome is Outcome.UNCHANGED:
        return Written(entry=old, prepared=prepared)
    if old is None:
        return Written(object=prepared.object, prepared=prepared, created=True)
    return Written(object=with_revision(prepared.object, old.revision), prepared=prepared)


def _check_keys(writes: Sequence[PendingWrite]) -> None:
    """Raise Failed if two writes are of one object."""
    seen: dict[Key, int] = {}
    for place, write in enumerate(writes):
        first = seen.setdefault(write.key, place)
        if first != place:
            error = status.bad_request(f"it is the object of spec.changes[{first}]: an object may be changed once")
            raise TransactionFailed(place, error)
