"""The status of ResourceQuotas: what they limit, and what is used of it.

Does what kube-controller-manager's resourcequota controller does: takes over what a quota demands, and counts again
when something goes or uses less than before. Admission charges what is made (actors/admission/resource_quota.py), so
that nothing has to be counted then. A count is written only if the quota is still as it was in the state that was
counted: a pod made meanwhile, on whatever replica, has charged the quota, and it is counted again. Beside a real
controller it does no harm: both come to the same.

What each object uses is remembered until it changes, so that counting a namespace again is adding up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import trio

from kubechronicle.actors.admission.chain import State
from kubechronicle.actors.admission.resource_quota import QUOTAS, facts_of
from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.quota import amounts, scopes, totals
from kubechronicle.api.quota.amounts import Usage
from kubechronicle.api.quota.evaluators import Evaluator, Measure, evaluator_of
from kubechronicle.api.quota.facts import Facts
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.errors import Compacted, LogError
from kubechronicle.eventlog.records import Operation

log = logging.getLogger(__name__)

COMPONENT = "resourcequota-controller"
# What changes within this time (seconds) is counted together; what could not be counted is tried again after it.
SETTLE_INTERVAL = 0.1
RETRY_INTERVAL = 1.0
# Everything is counted again this often (kube-controller-manager's --resource-quota-sync-period).
RESYNC_INTERVAL = 300.0
# Objects measured before others get their turn.
MEASURED_AT_ONCE = 200


class ResourceQuotaLoop:
    def __init__(self, store: Store) -> None:
        self._store = store
        rt = store.registry.storage(QUOTAS)
        assert rt is not None, "resource quotas are a built-in resource"
        self._quotas = rt
        self._state = State(peek=store.reads.peek, entries=store.reads.entries)
        self._waiting: set[str] = set()  # namespaces to be counted
        self._awake = trio.Event()
        self._followed: set[str] = set()  # resources
        self._measures = Measures(store)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch quotas and what they track."""
        self._followed = {QUOTAS}
        self._measures = Measures(self._store)
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, self._quotas)
            await self._count_for_ever(nursery)

    # -- what happens -------------------------------------------------------------------------------------------------

    async def _follow(self, rt: ResourceType) -> None:
        while True:
            try:
                watching = await self._store.reads.watch(rt, Selection(), revision=None)
                self._wake(entry.key.namespace for entry in self._store.reads.entries(QUOTAS, ""))
                while True:
                    for event in await watching.cursor.next_batch():
                        if self._concerns(event):
                            self._wake([event.entry.key.namespace])
            except Compacted:
                continue
            except (StatusError, LogError) as error:
                log.warning("%s could not be followed for their quotas, trying again: %s", rt.plural, error)
                await trio.sleep(RETRY_INTERVAL)

    def _wake(self, namespaces: Iterable[str]) -> None:
        self._waiting.update(namespaces)
        if self._waiting:
            self._awake.set()

    def _concerns(self, event: Event) -> bool:
        """Whether the namespace may use less than before, or its quotas have become others."""
        key = event.entry.key
        if key.resource == QUOTAS:
            return event.operation is not Operation.DELETE and _differs(event)
        if not self._store.reads.entries(QUOTAS, key.namespace) or event.operation is Operation.CREATE:
            return False
        evaluator = evaluator_of(key.resource)
        if event.operation is Operation.DELETE or evaluator is None or event.previous is None:
            return True
        if evaluator.constant is not None:
            return False
        facts = facts_of(self._state)
        before = self._measures.of(evaluator, event.previous, facts)
        return before != self._measures.of(evaluator, event.entry, facts)

    # -- counting -----------------------------------------------------------------------------------------------------

    async def _count_for_ever(self, nursery: trio.Nursery) -> None:
        while True:
            with trio.move_on_after(RESYNC_INTERVAL) as waited:
                await self._awake.wait()
            if waited.cancelled_caught:
                self._waiting.update(entry.key.namespace for entry in self._store.reads.entries(QUOTAS, ""))
            self._awake = trio.Event()
            namespaces, self._waiting = sorted(self._waiting), set()
            pause = SETTLE_INTERVAL
            for namespace in namespaces:
                try:
                    await self._count(namespace, nursery)
                except (StatusError, LogError, ActorError) as error:
                    log.warning("the quotas of %s could not be counted, trying again: %s", namespace, error)
                    self._wake([namespace])
                    pause = RETRY_INTERVAL
            await trio.sleep(pause)

    async def _count(self, namespace: str, nursery: trio.Nursery) -> None:
        entries = self._store.reads.entries(QUOTAS, namespace)
        if not entries:
            self._measures.forget(namespace)
            return
        facts = facts_of(self._state)
        hard = {name for entry in entries for name in (entry.object().get("spec") or {}).get("hard") or ()}
        tracked = self._tracking(hard, facts)
        for rt, evaluator in tracked:
            if rt.resource not in self._followed:
                self._followed.add(rt.resource)
                nursery.start_soon(self._follow, rt)
            await self._measures.renew(evaluator, namespace, facts)
        for entry in entries:
            await self._write(entry)

    def _tracking(self, names: Iterable[str], facts: Facts) -> list[tuple[ResourceType, Evaluator]]:
        """The resources that quotas by these names are about."""
        found = []
        for rt in self._store.registry.stored():
            evaluator = evaluator_of(rt.resource) if rt.namespaced else None
            if evaluator is not None and any(evaluator.covers(name, facts) for name in names):
                found.append((rt, evaluator))
        return found

    async def _write(self, entry: Entry) -> None:
        target = Target(
            rt=self._quotas, namespace=entry.key.namespace, name=entry.key.name, subresource="status", manager=COMPONENT
        )
        try:
            await self._store.writes.edit(system_caller(COMPONENT, "update"), target, self._counted)
        except StatusError as error:
            if error.code != 404:
                raise

    def _counted(self, quota: Object) -> Object:
        """The quota as its status should be, by the state of this moment."""
        facts = facts_of(self._state)
        hard = dict((quota.get("spec") or {}).get("hard") or {})
        held = (quota.get("status") or {}).get("used") or {}
        used = self._used(quota, hard, facts)
        kept = amounts.parsed({name: held[name] for name in held if name in hard})
        texts = amounts.texts({**kept, **used})
        for name, amount in kept.items():
            if amount[0] == used.get(name, amount)[0]:
                texts[name] = held[name]  # the same number, however it is written
        return {**quota, "status": {"hard": hard, "used": texts}}

    def _used(self, quota: Object, hard: Mapping[str, str], facts: Facts) -> Usage:
        namespace, selectors = quota["metadata"]["namespace"], scopes.selectors_of(quota)
        found: Usage = {}
        for rt, evaluator in self._tracking(hard, facts):
            names = evaluator.covered(hard, facts)
            entries = self._store.reads.entries(rt.resource, namespace)
            if evaluator.constant is not None:
                amounts.add(found, totals.times(names, selectors, evaluator.constant, len(entries)))
            else:
                measures = (self._measures.of(evaluator, entry, facts) for entry in entries)
                amounts.add(found, totals.total(names, selectors, measures))
        return found


class Measures:
    """What objects use, remembered for those of namespaces with quotas."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, dict[str, dict[str, tuple[Entry, Measure]]]] = {}  # by namespace, resource and name

    def of(self, evaluator: Evaluator, entry: Entry, facts: Facts) -> Measure:
        """What an object uses, or used at an earlier revision."""
        held = self._known.get(entry.key.namespace, {}).get(entry.key.resource, {}).get(entry.key.name)
        if held is not None and held[0] is entry:
            return held[1]
        return evaluator.measure(entry.object(), facts)

    async def renew(self, evaluator: Evaluator, namespace: str, facts: Facts) -> None:
        """Measure what is new or changed in a namespace, a little at a time, and forget what is not there any more."""
        known: dict[str, tuple[Entry, Measure]] = {}
        if evaluator.constant is not None or not evaluator.keeps:
            return
        held = self._known.get(namespace, {}).get(evaluator.resource, {})
        for place, entry in enumerate(self._store.reads.entries(evaluator.resource, namespace)):
            if place % MEASURED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            found = held.get(entry.key.name)
            if found is not None and found[0] is entry:
                known[entry.key.name] = found
            elif b'"deletionTimestamp":' not in entry.json:  # what ends by itself uses less as time goes by
                known[entry.key.name] = entry, evaluator.measure(entry.object(), facts)
        self._known.setdefault(namespace, {})[evaluator.resource] = known

    def forget(self, namespace: str) -> None:
        self._known.pop(namespace, None)


def _differs(event: Event) -> bool:
    """Whether a quota demands something else than before, or its status does not say all, or says it only now: then
    another replica may just be making something without knowing of it."""
    quota = event.entry.object()
    spec, current = quota.get("spec") or {}, quota.get("status") or {}
    hard = spec.get("hard") or {}
    if hard != (current.get("hard") or {}) or any(name not in (current.get("used") or {}) for name in hard):
        return True
    before = event.previous.object() if event.previous is not None else {}
    return spec != before.get("spec") or current.get("hard") != (before.get("status") or {}).get("hard")
