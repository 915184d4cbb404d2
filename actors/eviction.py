"""Eviction of a pod: its budget is used up and its end begins in one transaction, or neither happens.

    update poddisruptionbudgets.policy/default/web   disruptionsAllowed 1 -> 0, disruptedPods: web-1
      + update pods/default/web-1                    condition DisruptionTarget, deletionTimestamp

So a budget is never used for a pod that stays, and two evictions, on whatever replicas, never share one disruption.
What the budget allows is decided by api/subresources/eviction.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from msgspec import structs

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.commits import Proposal, prepare_delete
from kubechronicle.actors.writing.targets import Caller, Target, context_of
from kubechronicle.actors.writing.writes import MAX_ATTEMPTS
from kubechronicle.api.errors import status
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.subresources import eviction
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key

BUDGETS = "poddisruptionbudgets.policy"
MANAGER = "kube-apiserver"
"""Who manages what is noted in a budget."""


class _Changed(Exception):
    """Another budget than the one at hand, or none, guards the pod by now."""


async def evict(store: Store, caller: Caller, target: Target, sent: Object, options: DeleteOptions) -> None:
    """Evict ``target``, a pod, as the Eviction ``sent`` asks. StatusError: 404; 409 for failed preconditions; 429 if
    its budget has no disruption to give; 500 for a pod of several budgets."""
    if options.dry_run:
        target = structs.replace(target, dry_run=True)
    await store.writes.admit(caller, target, sent)
    # A budget this replica has not seen yet would let go what must stay.
    await store.reads.wait_consistent()
    work = _Eviction(store, caller, structs.replace(target, subresource=""), options)
    for _ in range(MAX_ATTEMPTS):
        try:
            return await work.run()
        except _Changed:
            continue
    raise status.conflict(target.rt, target.name)


@dataclass(slots=True)
class _Eviction:
    store: Store
    caller: Caller
    target: Target
    options: DeleteOptions
    at_once: bool = False
    """The pod has no time to end: once it is marked, it goes."""

    async def run(self) -> None:
        entry = self._pod()
        budget = self._budget(entry) if entry is not None else None
        if budget is None:
            await self.store.writes.propose(self.caller, self.target, self._uncounted, deleting=True)
        else:
            await self._count(budget)
        if self.at_once and not self.target.dry_run:
            rest = replace(self.options, precondition_resource_version=None)
            try:
                await self.store.writes.delete(self.caller, self.target, rest)
            except status.StatusError as error:
                if error.code != 404:
                    raise

    async def _count(self, budget: Entry) -> None:
        """Change the budget, and the pod beside it."""
        rt = self._budgets()
        target = Target(
            rt=rt,
            namespace=budget.key.namespace,
            name=budget.key.name,
            subresource="status",
            manager=MANAGER,
            dry_run=self.target.dry_run,
        )

        def prepare(old: Entry) -> Proposal:
            pod = self._pod()
            if pod is None:
                raise status.not_found(self.target.rt, self.target.name)
            guard = self._budget(pod)
            if guard is None or guard.key != old.key:
                raise _Changed
            context = context_of(target)
            stored = old.object()
            noted = eviction.used(stored, pod.key.name, now=context.now)
            prepared = self._end(pod)
            return Proposal(
                pipeline.prepare_update(rt, stored, noted, context),
                (CompanionChange(key=pod.key, old=pod, object=prepared.object),),
            )

        try:
            await self.store.writes.propose(self.caller, target, prepare, lanes=(budget.key,))
        except status.StatusError as error:
            # Said of the budget, not of the pod: it has been deleted.
            if error.code == 404 and self._pod() is not None:
                raise _Changed from None
            raise

    def _uncounted(self, old: Entry) -> Proposal:
        if self._budget(old) is not None:
            raise _Changed
        return Proposal(self._end(old))

    def _end(self, entry: Entry) -> Prepared:
        """The pod's deletion, or its first half; the pod says why it goes."""
        pod = entry.object()
        noted = eviction.target(pod, now=context_of(self.target).now)
        prepared, self.at_once = prepare_delete(self.target, entry, self.options, obj=noted)
        if prepared.outcome is Outcome.UNCHANGED and noted != pod:
            # It is on its way out already, but not for this reason.
            del noted["metadata"]["resourceVersion"]
            return replace(prepared, outcome=Outcome.STORE, object=noted)
        return prepared

    def _budget(self, pod: Entry) -> Entry | None:
        """The budget that has to be asked. StatusError 500 for several."""
        held = pod.object()
        if eviction.needs_no_budget(held):
            return None
        entries = {entry.key.name: entry for entry in self.store.reads.entries(BUDGETS, pod.key.namespace)}
        guard = eviction.guarding(held, (entry.object() for entry in entries.values()))
        if guard is None or eviction.goes_uncounted(held, guard):
            return None
        return entries[guard["metadata"]["name"]]

    def _pod(self) -> Entry | None:
        return self.store.reads.peek(*Key(self.target.rt.resource, self.target.namespace, self.target.name))

    def _budgets(self) -> ResourceType:
        rt = self.store.registry.storage(BUDGETS)
        if rt is None:
            raise AssertionError("a built-in resource")
        return rt
