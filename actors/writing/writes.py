"""The writing half of the store face: every change of an object, whoever asks for it, goes through here.

A write is prepared by pure rules (api/pipeline/pipeline.py) on the state this replica's view holds, then decided by the
resource actor and, with the last word, by the log. The view may lag behind other replicas, so a refusal on its strength
(not found, conflict, an unchanged object) counts only after a consistent read showed nothing newer:

    view: a at 7, another replica wrote 8        PUT a (no resourceVersion)
    prepared on 7 -> log refuses, actual 8 -> the view catches up -> prepared on 8 -> committed as 9

A client that names a resourceVersion gets its 409 by the rules of the preparation, on the newest state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from msgspec import structs

from kubechronicle.actors.admission import namespace_lifecycle
from kubechronicle.actors.admission.chain import AdmissionChain
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.external_answers import decide_with_answers, retry_with_answers
from kubechronicle.actors.reading.reads import Listing, Reads, Selection
from kubechronicle.actors.resource_actor import Commit
from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.actors.writing.commits import Commits, Prepare, Proposal, told
from kubechronicle.actors.writing.key_locks import KeyLocks
from kubechronicle.actors.writing.preparation import MayCreate, Preparing, anybody
from kubechronicle.actors.writing.targets import Caller as Caller
from kubechronicle.actors.writing.targets import Target as Target
from kubechronicle.actors.writing.targets import asked_by, context_of, name_suffix, named, new_uid
from kubechronicle.api.errors import status
from kubechronicle.api.meta.encoding import repeatedly
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.patching import APPLY_YAML
from kubechronicle.api.pipeline.pipeline import Prepared, WriteContext
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Describe, Entry, entry_of
from kubechronicle.eventlog.records import Key, Operation, Record, Refused

# How often a write starts over because others keep changing the object under it (etcd3 store: bounded by the request's
# time-out; here by both).
MAX_ATTEMPTS = 64
# How many names generateName tries (k8s.io/apiserver: maxNameGenerationCreateAttempts).
MAX_NAME_ATTEMPTS = 8
# Objects of a deletecollection that are in flight at once.
COLLECTION_CHUNK = 64


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What a write left: ``entry`` as stored, or ``object`` where nothing is stored that could be answered (dry runs,
    the last state of an object that is gone), in the storage version. ``created``: the object is new."""

    entry: Entry | None = None
    object: dict[str, Any] | None = None
    prepared: Prepared | None = None
    created: bool = False
    warnings: Sequence[str] = ()


class Writes:
    def __init__(self, *, reads: Reads, actors: ResourceActors, admission: AdmissionChain, describe: Describe) -> None:
        self._reads = reads
        self._admission = admission
        self._describe = describe
        self._preparing = Preparing(reads, admission)
        self._commits = Commits(actors, admission)
        self._lanes = KeyLocks()

    # -- the verbs ----------------------------------------------------------------------------------------------------

    async def create(self, caller: Caller, target: Target, body: Any, *, duplicates: Sequence[str] = ()) -> Written:
        """POST: ``body`` is the decoded JSON value as the client sent it. StatusError 4xx."""
        target = asked_by(caller, target)
        context = context_of(target, creates=True)
        obj, warnings = pipeline.decode_object(target.rt, body, context, duplicates=duplicates, create=True)
        written = await self._create(caller, target, repeatedly(obj), named(context, obj))
        return _telling(written, warnings, target)

    async def update(
        self,
        caller: Caller,
        target: Target,
        body: Any,
        *,
        duplicates: Sequence[str] = (),
        may_create: MayCreate = anybody,
    ) -> Written:
        """PUT: replace the object; creates it for the kinds that allow that."""
        target = asked_by(caller, target)
        creates = not target.subresource and pipeline.allows_create_on_update(target.rt)
        context = context_of(target, creates=creates)
        obj, warnings = pipeline.decode_object(target.rt, body, context, duplicates=duplicates, create=False)
        decoded = repeatedly(obj)

        def prepare(old: Entry) -> Proposal:
            return self._preparing.update(target, old, decoded(), context)

        for _ in range(MAX_ATTEMPTS):
            try:
                return _telling(await self._change(caller, target, prepare), warnings, target)
            except status.StatusError as error:
                if error.code != 404 or not creates:
                    raise
            try:
                return _telling(await self._create(caller, target, decoded, context, may_create), warnings, target)
            except status.StatusError as error:
                if error.reason != "AlreadyExists":
                    raise  # otherwise somebody else was faster, and theirs is updated
        raise status.conflict(target.rt, target.name)

    async def patch(
        self,
        caller: Caller,
        target: Target,
        content_type: str,
        body: bytes,
        *,
        force: bool = False,
        may_create: MayCreate = anybody,
    ) -> Written:
        """PATCH of any type, applied to the newest state; a server-side apply creates what is not there, and with
        ``force`` takes fields from their owners."""
        target = asked_by(caller, target)
        warnings: list[str] = []
        applies = content_type == APPLY_YAML
        creates = applies and not target.subresource

        def prepare(old: Entry) -> Proposal:
            context = context_of(target, applies=applies, force=force)
            new, told = pipeline.apply_patch(target.rt, old.object(), content_type, body, context)
            warnings[:] = told
            return self._preparing.update(target, old, new, context)

        for _ in range(MAX_ATTEMPTS):
            try:
                return _telling(await self._change(caller, target, prepare), warnings, target)
            except status.StatusError as error:
                # Nothing runs between the refusal and this look: it was said because the object is not there.
                there = self._reads.peek(target.rt.resource, target.namespace, target.name) is not None
                if error.code != 404 or not creates or there:
                    raise
            context = context_of(target, creates=True, applies=True, force=force)
            new, told = pipeline.apply_new(target.rt, body, context)
            try:
                return _telling(await self._create(caller, target, repeatedly(new), context, may_create), told, target)
            except status.StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
        raise status.conflict(target.rt, target.name)

    async def edit(self, caller: Caller, target: Target, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Written:
        """An update computed from the object by the server itself (loops): ``change`` gets it in the storage version
        and returns the new one; called again when the object has changed meanwhile."""
        target = asked_by(caller, target)

        def prepare(old: Entry) -> Proposal:
            return self._preparing.update(target, old, change(old.object()), context_of(target))

        return _telling(await self._change(caller, target, prepare), (), target)

    async def rewrite(
        self, caller: Caller, target: Target, change: Callable[[dict[str, Any]], dict[str, Any]], *, admitted: Any
    ) -> Written:
        """Change a stored object past the rules of an update (a binding); ``admitted`` is what the client sent and
        admission is shown, as a creation. ``change`` is called again when the object has changed meanwhile."""
        target = asked_by(caller, target)
        await self.admit(caller, target, admitted)

        def prepare(old: Entry) -> Proposal:
            new = change(old.object())
            new["metadata"].pop("resourceVersion", None)
            return Proposal(Prepared(pipeline.Outcome.STORE, new, old.revision))

        return await self._change(caller, target, prepare)

    async def admit(self, caller: Caller, target: Target, sent: Any) -> None:
        """Show admission what a client sent to a subresource that stores nothing under its own name, as a creation."""
        await retry_with_answers(
            partial(self._preparing.admit, asked_by(caller, target), sent), deadline=caller.deadline
        )

    async def propose(
        self, caller: Caller, target: Target, prepare: Prepare, *, deleting: bool = False, lanes: Sequence[Key] = ()
    ) -> Written:
        """What ``prepare`` makes of the stored object, with what commits beside it, past rules and admission; called
        again when any of that has changed. Holders of the same ``lanes`` take turns."""

        async def attempt() -> Written:
            async with self._lanes.hold(lanes, deadline=caller.deadline):
                return await self._change_in_lanes(caller, target, prepare, deleting=deleting)

        return await retry_with_answers(attempt, deadline=caller.deadline)

    async def delete(self, caller: Caller, target: Target, options: DeleteOptions) -> Written:
        """DELETE one object: gone at once, or marked for deletion."""
        target = asked_by(caller, target)
        marked = False

        def preparing(chosen: DeleteOptions) -> Prepare:
            def prepare(old: Entry) -> Proposal:
                nonlocal marked
                prepared, marked = self._preparing.delete(target, old, chosen)
                return Proposal(prepared)

            return prepare

        written = await self._change(caller, target, preparing(options), deleting=True)
        if marked and not target.dry_run:
            # A graceful end of no time at all: first it is marked, for watchers to see, then it goes. The mark has
            # changed the revision, so that is no longer demanded.
            rest = replace(options, precondition_resource_version=None)
            try:
                await self._change(caller, target, preparing(rest), deleting=True)
            except status.StatusError as error:
                if error.code != 404:
                    raise
        return written

    async def delete_collection(
        self, caller: Caller, target: Target, selection: Selection, options: DeleteOptions, **listing: Any
    ) -> Listing:
        """DELETE the selected objects, in key order. Returns them as they were found; one that vanishes meanwhile is as
        good as deleted."""
        target = asked_by(caller, target)
        found = await self._reads.list(target.rt, selection, **listing)
        for start in range(0, len(found.entries), COLLECTION_CHUNK):
            await self._delete_chunk(caller, target, found.entries[start : start + COLLECTION_CHUNK], options)
        return found

    async def _delete_chunk(
        self, caller: Caller, target: Target, entries: Sequence[Entry], options: DeleteOptions
    ) -> None:
        """Prepare in order, hand all to the actor in order, then wait for all: one batch, events in key order."""
        begun: list[tuple[Target, Commit, bool]] = []
        for entry in entries:
            one = structs.replace(target, namespace=entry.key.namespace, name=entry.key.name)
            prepared, marked = await decide_with_answers(partial(self._preparing.delete, one, entry, options))
            if not target.dry_run and prepared.outcome is not pipeline.Outcome.UNCHANGED:
                begun.append((one, self._commits.begin(caller, one, Proposal(prepared), entry), marked))
        for one, commit, marked in begun:
            outcome = told(await commit.wait(limited=caller.limited))
            if marked or isinstance(outcome, Refused):
                try:
                    await self.delete(caller, one, options)
                except status.StatusError as error:
                    if error.code != 404:
                        raise

    async def commit_own_changes(self, caller: Caller, changes: Sequence[CompanionChange]) -> bool:
        """Commit the server's own bookkeeping past rules and admission; False: it rests on what has changed."""
        return await self._commits.commit_own_changes(caller, changes)

    # -- the way of one write -----------------------------------------------------------------------------------------
    # An attempt that raises NeedsExternalAnswer has committed nothing and holds no lane; it is made again.

    async def _create(
        self,
        caller: Caller,
        target: Target,
        obj: Callable[[], dict[str, Any]],
        context: WriteContext,
        may_create: MayCreate = anybody,
    ) -> Written:
        attempt = partial(self._create_once, caller, target, obj, context, may_create)
        return await retry_with_answers(attempt, deadline=caller.deadline)

    async def _change(self, caller: Caller, target: Target, prepare: Prepare, *, deleting: bool = False) -> Written:
        attempt = partial(self._change_in_lanes, caller, target, prepare, deleting=deleting)
        return await retry_with_answers(attempt, deadline=caller.deadline)

    async def _create_once(
        self,
        caller: Caller,
        target: Target,
        obj: Callable[[], dict[str, Any]],
        context: WriteContext,
        may_create: MayCreate,
    ) -> Written:
        names = 0  # tried by generateName
        for _ in range(MAX_ATTEMPTS):
            async with self._lanes.hold(
                self._admission.lanes(target.rt, "CREATE", target.namespace), deadline=caller.deadline
            ):
                generated, proposal = await self._preparing.create(target, obj(), context, may_create)
                prepared = proposal.prepared
                key = Key(target.rt.resource, target.namespace, prepared.object["metadata"]["name"])
                if not target.dry_run:
                    outcome = await self._commits.commit(caller, target, proposal, None)
                    if not isinstance(outcome, Refused):
                        await self._take_back_if_late(caller, target.rt, outcome[0])
                        return self._stored(outcome, prepared, deleting=False, created=True)
                    if outcome.key != key:  # what it rests on or uses up has changed meanwhile
                        await self._reads.wait_consistent()
                        continue
            # Refused on the strength of this view, unless the log has said so; a dry run asks no more than the view.
            await self._reads.wait_consistent()
            existing = self._reads.peek(*key)
            if existing is None and target.dry_run:
                return Written(object=prepared.object, prepared=prepared, created=True)
            names += 1
            if existing is None and names < MAX_NAME_ATTEMPTS:
                continue  # another replica has deleted it
            if not generated or target.dry_run:
                raise _already_exists(target.rt, key.name, existing)
            if names == MAX_NAME_ATTEMPTS:
                raise status.generate_name_conflict(target.rt, key.name)
            context = structs.replace(context, name_suffix=name_suffix(), uid=new_uid())
        raise status.conflict(target.rt, key.name)

    async def _take_back_if_late(self, caller: Caller, rt: ResourceType, record: Record) -> None:
        """Delete what was created in a namespace that, as the views show only now, had begun to end before."""
        refusal = namespace_lifecycle.too_late(rt, record, self._reads.peek)
        if refusal is None:
            return
        entry = entry_of(record, self._describe)
        if await self._commits.take_back(caller, entry, record):
            raise refusal  # otherwise it has been found and cleaned up as what it was: created

    async def _change_in_lanes(self, caller: Caller, target: Target, prepare: Prepare, *, deleting: bool) -> Written:
        operation = "DELETE" if deleting else "UPDATE"
        lanes = self._admission.lanes(target.rt, operation, target.namespace)
        async with self._lanes.hold(lanes, deadline=caller.deadline):
            return await self._change_in_turn(caller, target, prepare, deleting=deleting)

    async def _change_in_turn(self, caller: Caller, target: Target, prepare: Prepare, *, deleting: bool) -> Written:
        """Prepare on the newest state known, commit, and start over while others change the object meanwhile."""
        key = Key(target.rt.resource, target.namespace, target.name)
        old = self._reads.peek(*key)
        asked_again = False
        for _ in range(MAX_ATTEMPTS):
            seen = self._reads.applied
            refusal: status.StatusError | None = None
            proposal: Proposal | None = None
            try:
                if old is None:
                    raise status.not_found(target.rt, target.name)
                proposal = prepare(old)
            except status.StatusError as error:
                refusal = error
            prepared = proposal.prepared if proposal is not None else None
            if prepared is None or prepared.outcome is pipeline.Outcome.UNCHANGED:
                # Said on the strength of this view: true only if a consistent read shows nothing newer.
                held = await self._reads.wait_consistent()
                newer = self._reads.peek(*key)
                # A refusal may rest on other objects too: on a newer state it is asked once more.
                other = refusal is not None and held > seen and not asked_again
                asked_again |= other
                if newer is not old or other:
                    old = newer
                    continue
                if refusal is not None or prepared is None or old is None:
                    raise refusal or status.not_found(target.rt, target.name)
                return self._unstored(prepared, old)
            if old is None or proposal is None:
                raise AssertionError("prepared without an object")
            if target.dry_run:
                return Written(object=_with_revision(prepared.object, old.revision), prepared=prepared)
            outcome = await self._commits.commit(caller, target, proposal, old)
            if not isinstance(outcome, Refused):
                return self._stored(outcome, prepared, deleting=deleting)
            await self._reads.wait_consistent()
            old = self._reads.peek(*key)
        raise status.conflict(target.rt, target.name)

    def _stored(
        self, records: tuple[Record, ...], prepared: Prepared, *, deleting: bool, created: bool = False
    ) -> Written:
        record = records[0]
        if record.operation is Operation.DELETE and not deleting:
            # An update that took the last finalizer away: it is answered with the object as it was.
            return Written(object=prepared.object, prepared=prepared)
        entry = self._reads.peek(*record.key)
        if entry is None or entry.revision != record.revision:
            entry = entry_of(record, self._describe)
        return Written(entry=entry, prepared=prepared, created=created)

    @staticmethod
    def _unstored(prepared: Prepared, old: Entry) -> Written:
        if prepared.outcome is pipeline.Outcome.UNCHANGED:
            return Written(entry=old, prepared=prepared)
        return Written(object=_with_revision(prepared.object, old.revision), prepared=prepared)


def _already_exists(rt: ResourceType, name: str, existing: Entry | None) -> status.StatusError:
    error = status.already_exists(rt, name)
    if existing is not None and "deletionTimestamp" in existing.object()["metadata"]:
        return error.with_message(f"object is being deleted: {error.message}")
    return error


def _telling(written: Written, warnings: Sequence[str], target: Target) -> Written:
    """With the warnings of decoding and, once each, those of admission and of the rules, both perhaps asked
    more than once."""
    if not warnings and not target.warnings:
        return written
    return structs.replace(written, warnings=[*warnings, *dict.fromkeys(target.warnings)])


def _with_revision(obj: dict[str, Any], revision: int) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}
