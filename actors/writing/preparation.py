"""The step before a commit: rules (api/pipeline/pipeline.py) and admission applied to a write, on this replica's view.

    creation    accept → mutating admission → storage hooks → rules of the kind → validating admission
    update      the same, beside the stored object
    deletion    the mark or the end → admission

Nothing here commits. Admission waits for webhooks where it asks them (``Turn.wait``), with no lock held. A creation
waits, too, if admission rejects it: that runs again once the view is up to date. The rules of a large object run in a
thread (actors/large_work.py), admission never does: it reads the views. Rules that lack an answer from outside raise
NeedsExternalAnswer; then the write is prepared again, from its beginning.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import ne
from typing import Any

import msgspec
from msgspec import structs

from kubechronicle.actors.admission.chain import (
    CREATE,
    DELETE,
    UPDATE,
    AdmissionChain,
    Attributes,
    retry_while_not_yet,
)
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.reading.converted_reads import needs_webhook
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.writing.targets import Target, attributes_of, context_of
from kubechronicle.api.builtin.kinds import KindRules, strategy_of
from kubechronicle.api.errors import status
from kubechronicle.api.meta import metadata, stored_contents
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.meta.options import DeleteOptions, sent_options
from kubechronicle.api.pipeline import deleting, pipeline, tracking
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared, WriteContext
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Change, Key, Operation, Record, Transaction, Who

TERMINATING = "create not allowed while custom resource definition is terminating"

MayCreate = Callable[[], None]
"""Authorize the creation of a missing object by an update or apply. Raises StatusError or NeedsExternalAnswer."""

MakeObject = Callable[[], dict[str, Any]]
"""Return a fresh copy of the object to create, in the version of the request. Pure; may run in a thread."""

MakeUpdate = Callable[[Entry], dict[str, Any]]
"""Return a fresh copy of the new object from the stored one, in the version of the request. As MakeObject."""


def always_allowed() -> None:
    """Allow the creation: the request was authorized as one."""


class Proposal(msgspec.Struct, frozen=True):
    """A write that passed rules and admission.

    ``prepared``: the object to store, or its deletion.
    ``companions``: the changes to commit with it.
    ``generated_name``: the object's name was completed from generateName.
    ``then_delete``: this change marks a graceful deletion that is over at once; the object must be deleted next.
    """

    prepared: Prepared
    companions: Sequence[CompanionChange] = ()
    generated_name: bool = False
    then_delete: bool = False


Complete = Callable[[dict[str, Any]], Awaitable[None]]
"""Complete and check a body that is not stored, in place. The result is the same each time. Raises StatusError."""

Prepare = Callable[[Entry, Turn], Awaitable[Proposal]]
"""Prepare a change of an existing object. Raises StatusError or NeedsExternalAnswer."""


class Preparation:
    """Prepares writes. ``rules``: those of the server's feature gates; None: of the default ones."""

    def __init__(self, reads: Reads, admission: AdmissionChain, rules: KindRules | None = None) -> None:
        self._reads = reads
        self._admission = admission
        self._rules = rules

    def over(self, admission: AdmissionChain) -> Preparation:
        """Return the same with another chain of admission."""
        return Preparation(self._reads, admission, self._rules)

    async def create(
        self, target: Target, make: MakeObject, context: WriteContext, may_create: MayCreate, turn: Turn, size: int
    ) -> Proposal:
        """Prepare the creation of the object that ``make`` returns. ``size``: its bytes as sent."""
        rt, admission = target.rt, self._admission
        if turn.is_small(size):
            accepted = _accept_create(rt, make, context, self._rules)
        else:
            accepted = await turn.run(size, _accept_create, rt, make, context, self._rules)
        meta = accepted["metadata"]
        name = meta.get("name", "")
        if rt.custom is not None and rt.custom.terminating:
            raise status.forbidden(rt.group_resource, name, TERMINATING)
        attributes = attributes_of(target, CREATE, accepted, None, name=name, seed=context.uid)
        managed = meta.get("managedFields")
        with admission.measured(attributes):
            await self._admit_on_newest_state(partial(admission.admit, attributes, turn), attributes)
            meta = accepted["metadata"]
            _settle_metadata(accepted, managed, attributes.warnings)
            if meta.get("name", "") != name:  # a webhook has renamed it, not the request
                attributes = structs.replace(attributes, name=meta.get("name", ""))
            # Addresses and ports are allocated to the final name.
            metadata.generate_name(meta, name_suffix=context.name_suffix)
            await self._begin_write_on_newest_state(attributes)
            if turn.is_small(size):
                prepared = pipeline.finish_create(rt, accepted, context, attributes.causes, self._rules)
            else:
                prepared = await turn.run(
                    size, pipeline.finish_create, rt, accepted, context, attributes.causes, self._rules
                )
            attributes.warnings.extend(prepared.warnings)
            if rt.namespaced and not target.namespace:
                raise status.bad_request("Namespace parameter required.")
            may_create()  # as in kube-apiserver: after all rules, before validating admission
            admitted = attributes.with_object(prepared.object, prepared.requested)
            await self._admit_on_newest_state(partial(admission.validate, admitted, turn), admitted)
        if prepared.rejection is not None:
            raise prepared.rejection
        return Proposal(prepared, attributes.companions, bool(context.name_suffix) and not name)

    async def update(
        self, target: Target, old: Entry, make: MakeUpdate, context: WriteContext, turn: Turn, size: int = 0
    ) -> Proposal:
        """Prepare the update of ``old`` to the object that ``make`` returns. ``size``: the bytes of the body."""
        rt, admission, size = target.rt, self._admission, max(size, len(old.json))
        stored, accepted = await turn.run(size, _accept_update, rt, old, make, context, self._rules)
        seed = f"{old.uid} {old.revision}"
        attributes = attributes_of(target, UPDATE, accepted, old, former=stored, seed=seed)
        managed = accepted["metadata"].get("managedFields")
        with admission.measured(attributes):
            await admission.admit(attributes, turn)
            _settle_metadata(accepted, managed, attributes.warnings)
            admission.begin_write(attributes)
            prepared = await turn.run(
                size, pipeline.finish_update, rt, stored, accepted, context, attributes.causes, self._rules
            )
            if prepared.outcome is Outcome.UNCHANGED and old.revision == old.create_revision:
                prepared = pipeline.finish_first_update(rt, prepared)
            attributes.warnings.extend(prepared.warnings)
            await admission.validate(attributes.with_object(prepared.object, prepared.requested), turn)
        return Proposal(prepared, attributes.companions)

    async def delete(
        self,
        target: Target,
        old: Entry,
        turn: Turn,
        *,
        options: DeleteOptions,
        collection: bool = False,
        admitted: bool = False,
    ) -> Proposal:
        """Prepare the deletion of ``old`` as ``prepare_delete``, with admission, which sees a possible deletion only.

        ``collection``: as in Attributes. ``admitted``: this is the rest of a deletion that admission has seen.
        """
        if not collection:
            deleting.require_deletable(target.rt, old.key.name)
        if needs_webhook(target.rt):
            # A webhook that fails keeps the object: kube-apiserver reads what it deletes in the request's version.
            pipeline.to_request_version(target.rt, old.object())
        proposal = await turn.run(len(old.json), prepare_delete, target, old, options)
        if not admitted and not _is_under_way(target, proposal.prepared):
            # Of a collection, admission sees the options as they were sent: kube-apiserver completes a copy for each.
            if not collection and target.rt.resource == pipeline.NAMESPACES and options.precondition_uid is None:
                options = replace(options, precondition_uid=old.uid)  # as kube-apiserver's registry of namespaces
            if not collection and (options.grace_period_seconds or 0) < 0:
                options = replace(options, grace_period_seconds=1)
            if not collection and strategy_of(target.rt.resource).graceful:
                options = replace(options, grace_period_seconds=_grace_period(proposal.prepared, options))
            shown = structs.replace(target, options=sent_options(options))
            attributes = attributes_of(shown, DELETE, None, old, collection=collection)
            with self._admission.measured(attributes):
                await self._admission.admit(attributes, turn)
                await self._admission.validate(attributes, turn)
        return proposal

    async def admit(
        self, target: Target, sent: Any, turn: Turn, *, operation: str = CREATE, complete: Complete | None = None
    ) -> None:
        """Pass the body of a subresource that is not stored under its own name through admission.

        ``complete``: as in Writes.admit.
        """
        obj = await turn.run(0, copy_object, sent)  # another attempt begins with the body as it was sent
        attributes = attributes_of(target, operation, obj, None)
        with self._admission.measured(attributes):
            await self._admit_on_newest_state(partial(self._admission.admit, attributes, turn), attributes)
            if complete is not None:
                await complete(obj)
            await self._admit_on_newest_state(partial(self._admission.validate, attributes, turn), attributes)
        if await turn.run(0, ne, obj, sent):
            sent.clear()
            sent.update(obj)

    async def _begin_write_on_newest_state(self, attributes: Attributes) -> None:
        """Run the storage hooks of a creation, as ``_admit_on_newest_state``."""

        async def begin_write() -> None:
            self._admission.begin_write(attributes)

        await self._admit_on_newest_state(begin_write, attributes)

    async def _admit_on_newest_state(self, check: Callable[[], Awaitable[None]], attributes: Attributes) -> None:
        """Run a step of admission of a creation; if it rejects, again once the view is up to date. StatusError.

        The namespace, for one, may just have been created on another replica.
        """
        companions, measured = len(attributes.companions), len(attributes.measured)
        try:
            await check()
            if not attributes.causes:
                return
        except status.StatusError:
            pass
        del attributes.companions[companions:]
        del attributes.measured[measured:]
        attributes.causes.clear()
        await self._reads.wait_consistent()
        await retry_while_not_yet(check, attributes)


def _accept_create(
    rt: ResourceType, make: MakeObject, context: WriteContext, rules: KindRules | None
) -> dict[str, Any]:
    return pipeline.accept_create(rt, make(), context, rules)


def _accept_update(
    rt: ResourceType, old: Entry, make: MakeUpdate, context: WriteContext, rules: KindRules | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    shares = tracking.shares(rt, old.mark, context)
    stored = stored_contents.decode(old.json) if shares else old.object()
    tracking.note_as_read(rt, stored, old.mark, context)
    new = make(old)
    return stored, pipeline.accept_update(rt, stored, new, context, rules)


def _settle_metadata(obj: dict[str, Any], managed: Any, warnings: list[str]) -> None:
    """Correct what mutating admission or a patch has written into the metadata, in place, with warnings.

    ``managed``: the managedFields before admission.
    """
    tracking.keep_usable(obj, managed, warnings)
    if repeated := metadata.drop_repeated_owners(obj["metadata"]):
        warnings.append(metadata.repeated_owners_warning(repeated, after_admission=True))


def _is_under_way(target: Target, prepared: Prepared) -> bool:
    """Tell whether a deletion changes nothing because the object is being deleted, so that admission is not asked.

    A deletion that finalizers hold up is shown to admission each time.
    """
    if prepared.outcome is not Outcome.UNCHANGED:
        return False
    if target.rt.resource == pipeline.NAMESPACES:
        return True
    return strategy_of(target.rt.resource).graceful and bool(
        prepared.object["metadata"].get("deletionGracePeriodSeconds")
    )


def _grace_period(prepared: Prepared, options: DeleteOptions) -> int | None:
    """Return the seconds that the deletion gives the object, as admission sees them; those of the request if none."""
    changed = prepared.outcome is not Outcome.UNCHANGED
    found: int | None = prepared.object["metadata"].get("deletionGracePeriodSeconds") if changed else None
    return options.grace_period_seconds if found is None else found


def prepare_delete(
    target: Target, old: Entry, options: DeleteOptions, *, obj: dict[str, Any] | None = None
) -> Proposal:
    """Prepare a deletion without admission. A graceful one that is over at once is stored as such first, for watchers.

    ``obj``: ``old`` with a last change, resourceVersion included.
    """
    prepared = deleting.prepare_delete(target.rt, obj or old.object(), options, context_of(target))
    if prepared.outcome is Outcome.STORE_THEN_GONE:
        return Proposal(structs.replace(prepared, outcome=Outcome.STORE), then_delete=True)
    return Proposal(prepared)


# -- transactions ------------------------------------------------------------------------------------------------------
#
# Transactions of the log for prepared writes. Pure.
#
# The write's resource actor decides a transaction. Companion changes that charge or allocate precede the write, so
# that their revisions are lower; those that release follow it.

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
