"""Eviction of a pod: one transaction takes a disruption from its budget and begins its deletion.

    update poddisruptionbudgets.policy/default/web   disruptionsAllowed 1 -> 0, disruptedPods: web-1
      + update pods/default/web-1                    condition DisruptionTarget, deletionTimestamp

So two evictions never share one disruption, on any replicas. A budget is charged for a pod that stays only if
preconditions reject the deletion: the budget's controller then frees the disruption after a while.
api/subresources/eviction.py decides if the budget allows a disruption.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from msgspec import structs

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.reading.selection import in_turns
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.preparation import Proposal, prepare_delete
from kubechronicle.actors.writing.targets import Caller, Target, context_of
from kubechronicle.actors.writing.write_loop import MAX_ATTEMPTS
from kubechronicle.actors.writing.writes import ignore_not_found
from kubechronicle.api.errors import status
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.deletion import check_preconditions
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared
from kubechronicle.api.subresources import eviction
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key

BUDGETS = "poddisruptionbudgets.policy"
MANAGER = "kube-apiserver"
"""The field manager of changes to a budget."""


ReadOptions = Callable[[Object], tuple[DeleteOptions, status.StatusError | None]]
"""Return the options of the deletion that an Eviction requests, and their 422. StatusError: it contradicts the URL.

As in kube-apiserver, the pod gets its condition before it is kept because of the 422.
"""


class _Changed(Exception):
    """The pod is now guarded by another budget, or by none."""


async def evict(
    store: Store,
    caller: Caller,
    target: Target,
    sent: Object,
    read_options: ReadOptions,
) -> None:
    """Evict a pod, ``target``, on behalf of the Eviction ``sent``, whose options webhooks and policies may change.

    StatusError: 404; 409 for failed preconditions; 429 if its budget allows no disruption; 500 for several budgets.
    """

    async def check(admitted: Object) -> None:
        read_options(admitted)

    # Admission knows the dry run of the URL alone, and comes before the checks, as in kube-apiserver.
    await store.writes.admit(caller, target, sent, check)
    options, invalid = read_options(sent)
    turn = caller.turn
    assert turn is not None, "the request has a share in the large work"
    target = structs.replace(target, dry_run=target.dry_run or options.dry_run)
    # A budget that this replica has not seen yet must count.
    await store.reads.wait_consistent()
    work = _Eviction(store, caller, structs.replace(target, subresource=""), options, invalid)
    for _ in range(MAX_ATTEMPTS):
        try:
            return await work.run(turn)
        except _Changed:
            continue
    raise status.conflict(target.rt, target.name)


@dataclass(slots=True)
class _Eviction:
    store: Store
    caller: Caller
    target: Target
    options: DeleteOptions
    invalid: status.StatusError | None = None
    """Why the pod stays although its condition is set: invalid options of its deletion."""
    then_delete: bool = False
    """The pod has no grace period: after it is marked, it is deleted."""
    rejection: status.StatusError | None = None
    """Why the pod stays although its budget is charged: preconditions of its deletion."""

    async def run(self, turn: Turn) -> None:
        entry = self._pod()
        if entry is not None:
            await turn.begin(len(entry.json))  # before the locks: those with a place may wait for them
        budget = await self._budget(entry, turn) if entry is not None else None
        if budget is None:
            await self.store.writes.propose(self.caller, self.target, self._without_budget, deletes=True)
        else:
            await self._with_budget(budget)
        if self.invalid is not None:
            raise self.invalid
        if self.then_delete and not self.target.dry_run:
            rest = replace(self.options, precondition_resource_version=None)
            with ignore_not_found():
                await self.store.writes.delete(self.caller, self.target, rest, admitted=True)

    async def _with_budget(self, budget: Entry) -> None:
        """Charge the budget, with the pod's deletion as companion change.

        A rejected deletion is raised after the budget has been charged, as by kube-apiserver.
        """
        rt = self.store.registry.builtin("policy", "v1", "poddisruptionbudgets")
        target = Target(
            rt=rt,
            namespace=budget.key.namespace,
            name=budget.key.name,
            subresource="status",
            manager=MANAGER,
            dry_run=self.target.dry_run,
        )

        async def prepare(old: Entry, turn: Turn) -> Proposal:
            pod = self._pod()
            if pod is None:
                raise status.not_found(self.target.rt, self.target.name)
            guard = await self._budget(pod, turn)
            if guard is None or guard.key != old.key:
                raise _Changed
            context = context_of(target)
            stored = old.object()
            charged = eviction.used(stored, pod.key.name, now=context.now)
            charge = pipeline.prepare_update(rt, stored, charged, context)
            self.rejection = None
            try:
                prepared = await turn.run(len(pod.json), self._delete, pod)
            except status.StatusError as error:
                self.rejection = error
                return Proposal(charge)
            return Proposal(charge, (CompanionChange(key=pod.key, old=pod, object=prepared.object, follows=True),))

        try:
            await self.store.writes.propose(self.caller, target, prepare, locks=(budget.key,))
        except status.StatusError as error:
            # The 404 is the budget's, which has been deleted, not the pod's.
            if error.code == 404 and self._pod() is not None:
                raise _Changed from None
            raise
        if self.rejection is not None:
            raise self.rejection

    async def _without_budget(self, old: Entry, turn: Turn) -> Proposal:
        if await self._budget(old, turn) is not None:
            raise _Changed
        return Proposal(await turn.run(len(old.json), self._delete, old))

    def _delete(self, entry: Entry) -> Prepared:
        """Prepare the pod's deletion, or its first half, with the condition that says why."""
        pod = entry.object()
        disrupted = eviction.target(pod, now=context_of(self.target).now)
        if self.invalid is not None:
            return self._mark(entry, pod, disrupted)
        proposal = prepare_delete(self.target, entry, self.options, obj=disrupted)
        self.then_delete = proposal.then_delete
        if proposal.prepared.outcome is Outcome.UNCHANGED and disrupted != pod:
            # Another deletion has marked it already: only the condition is new.
            del disrupted["metadata"]["resourceVersion"]
            return structs.replace(proposal.prepared, outcome=Outcome.STORE, object=disrupted)
        return proposal.prepared

    def _mark(self, entry: Entry, pod: Object, disrupted: Object) -> Prepared:
        """Prepare only the pod's condition. StatusError: 409 for failed preconditions; in a dry run the 422."""
        if self.invalid is not None and self.target.dry_run:
            raise self.invalid
        check_preconditions(pod, self.options)
        if disrupted == pod:
            return Prepared(Outcome.UNCHANGED, pod, entry.revision)
        del disrupted["metadata"]["resourceVersion"]
        return Prepared(Outcome.STORE, disrupted, entry.revision)

    async def _budget(self, pod: Entry, turn: Turn) -> Entry | None:
        """Return the budget to charge, from the present ones. StatusError 500 for several."""
        obj = await turn.run(len(pod.json), _judged_part, pod)
        if eviction.needs_no_budget(obj):
            return None
        found: list[Entry] = []
        async for entries in in_turns(self.store.reads.entries(BUDGETS, pod.key.namespace)):
            found += [entry for entry in entries if eviction.selects(entry.object(), obj)]
        if len(found) > 1:
            raise eviction.several_budgets()
        return found[0] if found and not eviction.goes_uncounted(obj, found[0].object()) else None

    def _pod(self) -> Entry | None:
        return self.store.reads.peek(*Key(self.target.rt.resource, self.target.namespace, self.target.name))


def _judged_part(pod: Entry) -> Object:
    return eviction.judged_part(pod.object())
