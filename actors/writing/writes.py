"""Writes: the one way to change objects, for clients and for the server's own loops.

Every write runs through one loop (``WriteLoop.carry_out``):

    lock the keys of companion changes      quotas, budgets; most writes have none
    prepare                                 rules and admission, on this replica's view
    commit                                  through the resource actor; the log has the last word
    otherwise catch up and start over       another write came first, or the view was out of date

This replica's view may lag behind other replicas. A rejection that rests on it (not found, conflict, invalid, an
unchanged object) therefore counts only after a consistent read has shown nothing newer:

    view: a at 7, another replica wrote 8        PUT a (no resourceVersion)
    prepared on 7 → the log rejects it, actual 8 → the view catches up → prepared on 8 → committed as 9

A client that sends a resourceVersion gets its 409 from the preparation, on the newest state.

The rules of large bodies and objects run in a thread (actors/large_work.py). Other writes run meanwhile, as during a
commit: what they changed is found at the commit, or by the consistent read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from kubechronicle.actors.admission.chain import CONNECT, AdmissionChain
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.external_answers import retry_with_answers
from kubechronicle.actors.large_work import LargeWork, Turn
from kubechronicle.actors.pauses import Pauses
from kubechronicle.actors.reading.conversions import Conversions
from kubechronicle.actors.reading.converted_reads import ConvertedEntries, list_both
from kubechronicle.actors.reading.reads import Listing, Reads, Selection
from kubechronicle.actors.resource_actor import Commit
from kubechronicle.actors.resource_actors import ResourceActors
from kubechronicle.actors.writing.preparation import (
    Complete,
    MayCreate,
    Preparation,
    Prepare,
    Proposal,
    always_allowed,
    transaction_of,
)
from kubechronicle.actors.writing.requests import PendingWrite, creation, deletion, patching, replacement
from kubechronicle.actors.writing.requests import Written as Written
from kubechronicle.actors.writing.targets import Caller as Caller
from kubechronicle.actors.writing.targets import Target as Target
from kubechronicle.actors.writing.targets import context_of, requested_by
from kubechronicle.actors.writing.together import Together
from kubechronicle.actors.writing.write_loop import IsStale, WriteLoop
from kubechronicle.api.builtin.kinds import KindRules
from kubechronicle.api.errors import status
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared
from kubechronicle.eventlog.entries import Describe, Entry
from kubechronicle.eventlog.records import Key, Rejected

COLLECTION_CHUNK = 64
"""Objects of a deletecollection that are committed at once."""

COLLECTION_BYTES = 4 * 1024 * 1024
"""Bytes of these objects, after which no more are added."""

Compute = Callable[[dict[str, Any]], dict[str, Any]]
"""Return the new object from the stored one, in the storage version. Called again if the object has changed."""


class Writes:
    def __init__(
        self,
        *,
        reads: Reads,
        actors: ResourceActors,
        admission: AdmissionChain,
        describe: Describe,
        conversions: Conversions | None = None,
        is_stale: IsStale | None = None,
        rules: KindRules | None = None,
    ) -> None:
        """``conversions``: those of webhooks; None: no definition has one. ``is_stale``: as in WriteLoop.

        ``rules``: as in Preparation.
        """
        self._reads = reads
        self._actors = actors
        self._admission = admission
        self._describe = describe
        self._preparation = Preparation(reads, admission, rules)
        self._loop = WriteLoop(
            reads=reads,
            actors=actors,
            admission=admission,
            describe=describe,
            preparation=self._preparation,
            conversions=conversions,
            is_stale=is_stale,
        )
        self.large = LargeWork()

    # -- the verbs ----------------------------------------------------------------------------------------------------

    async def create(
        self, caller: Caller, target: Target, body: Any, *, duplicates: Sequence[str] = (), size: int = 0
    ) -> Written:
        """POST ``body``, the decoded JSON value the client sent in ``size`` bytes. StatusError 4xx."""
        target, turn = requested_by(caller, target), self._turn_of(caller)
        write, warnings = await creation(
            self._preparation, caller, target, turn, body, duplicates=duplicates, size=size
        )
        return await self._carry_out(write, warnings)

    async def update(
        self,
        caller: Caller,
        target: Target,
        body: Any,
        *,
        duplicates: Sequence[str] = (),
        size: int = 0,
        may_create: MayCreate = always_allowed,
    ) -> Written:
        """PUT: replace the object, or create it if its kind allows that. ``size``: as in ``create``."""
        target, turn = requested_by(caller, target), self._turn_of(caller)
        write, warnings = await replacement(
            self._preparation, caller, target, turn, body, duplicates=duplicates, size=size, may_create=may_create
        )
        return await self._carry_out(write, warnings)

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
        target, turn = requested_by(caller, target), self._turn_of(caller)
        write, warnings = patching(
            self._preparation, caller, target, turn, content_type, body, force=force, may_create=may_create
        )
        return await self._carry_out(write, warnings)

    async def edit(self, caller: Caller, target: Target, compute: Compute) -> Written:
        """Update an object by a function of the stored one, for the server itself."""
        target = requested_by(caller, target)

        def computed(old: Entry) -> dict[str, Any]:
            return compute(old.object())

        context = context_of(target)

        def change(old: Entry, turn: Turn) -> Awaitable[Proposal]:
            return self._preparation.update(target, old, computed, context, turn)

        write = PendingWrite(caller=caller, target=target, change=change, turn=self._turn_of(caller))
        return await self._carry_out(write)

    async def _carry_out(self, write: PendingWrite, warnings: Sequence[str] = ()) -> Written:
        """Carry a write out, and add its warnings to the result or to the error. ``warnings``: those of decoding."""
        collected = write.target.warnings
        try:
            written = await self._loop.carry_out(write)
        except status.StatusError as error:
            error.warnings = _once_each(error.warnings or warnings, collected)
            raise
        if not warnings and not collected:
            return written
        return structs.replace(written, warnings=_once_each(warnings, collected))

    async def rewrite(
        self,
        caller: Caller,
        target: Target,
        compute: Compute,
        *,
        admitted: Any,
        reviewed: Target,
        complete: Complete | None = None,
    ) -> Written:
        """Change a stored object without the rules of an update, as a binding does.

        ``admitted``: the body the client sent, which admission receives as a creation of ``reviewed``.
        ``complete``: as in ``admit``.
        """
        await self.admit(caller, reviewed, admitted, complete)
        target = requested_by(caller, target)

        def computed(old: Entry) -> dict[str, Any]:
            new = compute(old.object())
            new["metadata"].pop("resourceVersion", None)
            return new

        async def change(old: Entry, turn: Turn) -> Proposal:
            new = await turn.run(len(old.json), computed, old)
            return Proposal(Prepared(Outcome.STORE, new, old.revision))

        turn = self._turn_of(caller)
        return await self._loop.carry_out(PendingWrite(caller=caller, target=target, change=change, turn=turn))

    async def admit(self, caller: Caller, target: Target, sent: Any, complete: Complete | None = None) -> None:
        """Pass the body of a subresource that is not stored under its own name through admission, as a creation.
        ``complete``: completes and checks it between mutating and validating admission."""
        await self._decide(
            caller, partial(self._preparation.admit, requested_by(caller, target), sent, complete=complete)
        )

    async def admit_connect(self, caller: Caller, target: Target, options: dict[str, Any]) -> None:
        """Pass a connection to a pod, service or node through admission, before it is made.

        ``target``: with the subresource ("exec", "proxy"). ``options``: the options of the connection, with apiVersion
        and kind (PodExecOptions); webhooks and policies may change them in place. StatusError: it is rejected.
        """
        await self._decide(
            caller, partial(self._preparation.admit, requested_by(caller, target), options, operation=CONNECT)
        )

    async def _decide(self, caller: Caller, admit: Callable[[Turn], Awaitable[None]]) -> None:
        """Await admission alone."""
        turn = self._turn_of(caller)
        turn.begin_decision(caller.deadline)
        try:
            await retry_with_answers(partial(admit, turn), turn.wait)
        finally:
            turn.end_decision()
            if caller.turn is None:
                turn.end()

    async def propose(
        self, caller: Caller, target: Target, change: Prepare, *, deletes: bool = False, locks: Sequence[Key] = ()
    ) -> Written:
        """Commit the change of a stored object, with its companion changes, that ``change`` has prepared.

        ``change`` is called again if any of these objects has changed. Writes with the same ``locks`` take turns.
        """
        turn = self._turn_of(caller)
        return await self._loop.carry_out(
            PendingWrite(caller=caller, target=target, change=change, deletes=deletes, locks=locks, turn=turn)
        )

    async def delete(
        self,
        caller: Caller,
        target: Target,
        options: DeleteOptions,
        *,
        admitted: bool = False,
        collection: bool = False,
    ) -> Written:
        """DELETE one object: at once, or by marking it for deletion.

        ``admitted``: it is the rest of a request that admission has seen already. ``collection``: as in Attributes.
        """
        target = requested_by(caller, target)
        make = partial(deletion, self._preparation, caller, target, admitted=admitted, collection=collection)
        write = make(self._turn_of(caller), options)
        written = await self._loop.carry_out(write)
        if write.proposal is not None and write.proposal.then_delete and not target.dry_run:
            # The mark has changed the revision, so the rest must not demand the old one. Admission sees both steps.
            rest = replace(options, precondition_resource_version=None)
            with ignore_not_found():
                return await self._loop.carry_out(make(self._turn_of(caller), rest))
        return written

    async def delete_collection(
        self,
        caller: Caller,
        target: Target,
        selection: Selection,
        options: DeleteOptions,
        *,
        converted: ConvertedEntries | None = None,
        limit: int = 0,
        **listing: Any,
    ) -> Listing:
        """DELETE the selected objects in key order, and return them as listed and stored before.

        An object that vanishes meanwhile counts as deleted. ``converted``: selectors apply to these forms of custom
        objects. ``limit``, ``listing``: as in Reads.list.
        """
        target, turn = requested_by(caller, target), self._turn_of(caller)
        if converted is None:
            listed = await self._reads.list(target.rt, selection, limit=limit, **listing)
        else:
            listed, _ = await list_both(self._reads, converted, target.rt, selection, limit=limit, **listing)
        try:
            pauses = Pauses()
            for chunk in _collection_chunks(listed.entries):
                await self._delete_chunk(structs.replace(caller, turn=turn), target, chunk, options, pauses)
        finally:
            if caller.turn is None:
                turn.end()
        return listed

    async def _delete_chunk(
        self, caller: Caller, target: Target, entries: Sequence[Entry], options: DeleteOptions, pauses: Pauses
    ) -> None:
        """Prepare the deletions, pass all to the actor, then wait for all: one batch, with events in key order."""
        begun: list[tuple[Target, Commit, bool]] = []
        turn, size = self._turn_of(caller), max(len(entry.json) for entry in entries)

        await turn.begin(size)
        for entry in entries:
            await pauses.pause()  # a dry run waits for nothing
            one = structs.replace(target, namespace=entry.key.namespace, name=entry.key.name)
            prepare = partial(self._preparation.delete, one, entry, turn, options=options, collection=True)
            turn.begin_decision(caller.deadline)
            try:
                with self._loop.converting(target.rt):
                    proposal = await retry_with_answers(prepare, turn.wait)
            finally:
                turn.end_decision()
            if not target.dry_run and proposal.prepared.outcome is not Outcome.UNCHANGED:
                transaction = await self._loop.transaction(one, proposal, entry, caller.who, turn, len(entry.json))
                begun.append((one, self._actors.begin(transaction, deadline=caller.deadline), proposal.then_delete))
        for one, commit, then_delete in begun:
            outcome = await commit.wait(limited=caller.limited)
            if isinstance(outcome, Exception):
                raise outcome
            if then_delete or isinstance(outcome, Rejected):
                with ignore_not_found():
                    await self.delete(caller, one, options, collection=True)

    def together(self, caller: Caller, turn: Turn) -> Together:
        """Return a transaction for several writes of the caller."""
        return Together(
            reads=self._reads,
            loop=self._loop,
            admission=self._admission,
            preparation=self._preparation,
            describe=self._describe,
            remove=self._remove,
            caller=caller,
            turn=turn,
        )

    async def _remove(self, caller: Caller, target: Target, options: DeleteOptions) -> None:
        with ignore_not_found():
            await self.delete(caller, target, options)

    async def commit_own_changes(self, caller: Caller, changes: Sequence[CompanionChange]) -> bool:
        """Commit the server's own bookkeeping without rules and admission. False: an object has changed meanwhile."""
        return not isinstance(await self._loop.commit(caller, transaction_of(changes, caller.who)), Rejected)

    def _turn_of(self, caller: Caller) -> Turn:
        """Return the caller's turn, or a new one for a write of the server's own."""
        return caller.turn if caller.turn is not None else self.large.turn(caller.who.user)


def _collection_chunks(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Yield the entries in chunks of at most COLLECTION_CHUNK, that end with the entry that fills COLLECTION_BYTES."""
    start = size = 0
    for end, entry in enumerate(entries, 1):
        size += len(entry.json)
        if end - start == COLLECTION_CHUNK or size >= COLLECTION_BYTES or end == len(entries):
            yield entries[start:end]
            start, size = end, 0


@contextmanager
def ignore_not_found() -> Iterator[None]:
    """Suppress a StatusError 404: the object to delete is gone already."""
    try:
        yield
    except status.StatusError as error:
        if error.code != 404:
            raise


def _once_each(warnings: Sequence[str], collected: Sequence[str]) -> list[str]:
    """Return the warnings of decoding, and those of rules and admission once each, however often they ran."""
    return [*warnings, *dict.fromkeys(collected)]
