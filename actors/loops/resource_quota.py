"""The status of ResourceQuotas: their limits and the usage.

Does the work of kube-controller-manager's resourcequota controller. It copies the limits of a quota's spec, and
recounts the usage after an object was deleted or uses less than before. Creations need no count: admission charges them
to the quota (actors/admission/resource_quota.py). A count is written only if the quota did not change since the counted
state. If a pod was created in the meantime, on any replica, it has charged the quota, and the count is repeated. A real
controller may run at the same time: both write the same counts.

The usage of each object is cached until it changes, so that a recount of a namespace only adds up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat

import trio

from kubechronicle.actors.admission.chain import AdmissionState
from kubechronicle.actors.admission.resource_quota import QUOTAS, facts_of
from kubechronicle.actors.large_work import LARGE
from kubechronicle.actors.loops.edits import NO_CHANGE, edit_if_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.retries import RETRIED
from kubechronicle.actors.pauses import Pauses
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors import status
from kubechronicle.api.quota import amounts, check, scopes
from kubechronicle.api.quota.amounts import Usage
from kubechronicle.api.quota.evaluators import Evaluator, Facts, Measure, evaluator_of
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.records import Operation

log = logging.getLogger(__name__)

COMPONENT = "resourcequota-controller"
# Seconds in which changes gather before they are counted together.
SETTLE_INTERVAL = 0.1
# Seconds before a failed count is repeated.
RETRY_INTERVAL = 1.0
# Seconds between two counts of all quotas (kube-controller-manager's --resource-quota-sync-period).
RESYNC_INTERVAL = 300.0
# Objects that are added up together, and the changes of a count after which it begins again.
MEASURED_AT_ONCE = 200
# Attempts to count a quota while its objects change.
MAX_ATTEMPTS = 8


class ResourceQuotaLoop:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._quotas = store.registry.builtin("", "v1", QUOTAS)
        self._state = AdmissionState(peek=store.reads.peek, entries=store.reads.entries)
        self._pending: dict[str, int] = {}  # namespaces to be counted, each with the cause (edits.py)
        self._has_pending = trio.Event()
        self._followed: set[str] = set()  # resources
        self._measures = Measures(store)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow quotas and the resources they limit."""
        self._followed = set()
        self._measures = Measures(self._store)
        task_status.started()
        async with trio.open_nursery() as nursery:
            self._follow(self._quotas, nursery)
            await self._count_forever(nursery)

    # -- changes ------------------------------------------------------------------------------------------------------

    def _follow(self, rt: ResourceType, nursery: trio.Nursery) -> None:
        if rt.resource in self._followed:
            return
        self._followed.add(rt.resource)
        reflector = Reflector(
            self._store.reads,
            rt,
            component=COMPONENT,
            on_list=self._add_all,
            on_changes=self._add_changed,
            delays=repeat(RETRY_INTERVAL),
        )
        nursery.start_soon(reflector.run)

    async def _add_all(self) -> None:
        self._add(entry.key.namespace for entry in self._store.reads.entries(QUOTAS, ""))

    async def _add_changed(self, events: Sequence[Event]) -> None:
        for event in events:
            if await self._needs_count(event):
                self._add([event.entry.key.namespace], cause=event.revision)

    def _add(self, namespaces: Iterable[str], *, cause: int = NO_CHANGE) -> None:
        for namespace in namespaces:
            self._pending[namespace] = cause or self._pending.get(namespace, NO_CHANGE)
        if self._pending:
            self._has_pending.set()

    async def _needs_count(self, event: Event) -> bool:
        """Return True if the namespace may use less than before, or its quotas have changed."""
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
        before = await self._measures.of(evaluator, event.previous, facts)
        return before != await self._measures.of(evaluator, event.entry, facts)

    # -- counting -----------------------------------------------------------------------------------------------------

    async def _count_forever(self, nursery: trio.Nursery) -> None:
        while True:
            with trio.move_on_after(RESYNC_INTERVAL) as timeout:
                await self._has_pending.wait()
            if timeout.cancelled_caught:
                await self._add_all()
            self._has_pending = trio.Event()
            pending, self._pending = self._pending, {}
            pause = SETTLE_INTERVAL
            for namespace, cause in sorted(pending.items()):
                try:
                    await self._count(namespace, nursery, cause)
                except RETRIED as error:
                    log.warning("the quotas of %s could not be counted, trying again: %s", namespace, error)
                    self._add([namespace], cause=cause)
                    pause = RETRY_INTERVAL
            await trio.sleep(pause)

    async def _count(self, namespace: str, nursery: trio.Nursery, cause: int) -> None:
        entries = self._store.reads.entries(QUOTAS, namespace)
        if not entries:
            self._measures.forget(namespace)
            return
        facts = facts_of(self._state)
        hard = {name for entry in entries for name in (entry.object().get("spec") or {}).get("hard") or ()}
        for rt, evaluator in self._limited(hard, facts):
            self._follow(rt, nursery)
            await self._measures.renew(evaluator, namespace, facts)
        for entry in entries:
            await self._write(entry, cause or entry.revision)

    def _limited(self, names: Iterable[str], facts: Facts) -> list[tuple[ResourceType, Evaluator]]:
        """Return the resources that limits of these names apply to."""
        limited = []
        for rt in self._store.registry.stored():
            evaluator = evaluator_of(rt.resource) if rt.namespaced else None
            if evaluator is not None and any(evaluator.covers(name, facts) for name in names):
                limited.append((rt, evaluator))
        return limited

    async def _write(self, entry: Entry, cause: int) -> None:
        """Write the status of a quota. RETRIED errors."""
        target = Target(
            rt=self._quotas, namespace=entry.key.namespace, name=entry.key.name, subresource="status", manager=COMPONENT
        )
        for _ in range(MAX_ATTEMPTS):
            facts = facts_of(self._state)
            count = QuotaCount(entry.object(), facts, self._measures, self._store.reads.entries, self._limited)
            await count.take()
            try:
                return await edit_if_exists(self._store, COMPONENT, target, count.applied_to, cause=cause)
            except Outdated:
                entry = self._store.reads.peek(*entry.key) or entry
        raise status.conflict(self._quotas, entry.key.name)


class Outdated(Exception):
    """The quota, or too many objects, have changed since they were counted."""


Entries = Callable[[str, str], Sequence[Entry]]
Limited = Callable[[Iterable[str], Facts], list[tuple[ResourceType, Evaluator]]]
"""Return the resources that limits of these names apply to."""


class QuotaCount:
    """The usage that a quota limits. Objects are counted in steps, on one state, and the changes since then at once:

    take         a, b, c, d …    1 + 1 + 1 + 1 …    with pauses
    meanwhile    b is deleted, e is created
    applied_to   − b, + e                            on the state that the new status is for
    """

    def __init__(self, quota: Object, facts: Facts, measures: Measures, entries: Entries, limited: Limited) -> None:
        self._facts, self._measures, self._entries = facts, measures, entries
        self._spec = quota.get("spec") or {}
        self._namespace = quota["metadata"]["namespace"]
        self._hard: dict[str, str] = dict(self._spec.get("hard") or {})
        self._selectors = scopes.selectors_of(quota)
        self._evaluators = [(each, each.covered(self._hard, facts)) for _, each in limited(self._hard, facts)]
        self._counted: dict[str, dict[Entry, Measure]] = {}  # by resource
        self._usage: Usage = {}

    async def take(self) -> None:
        """Count all objects."""
        pauses = Pauses()
        states = [(*each, self._entries(each[0].resource, self._namespace)) for each in self._evaluators]
        for evaluator, names, entries in states:
            if evaluator.constant is not None:
                continue
            counted = self._counted[evaluator.resource] = {}
            for start in range(0, len(entries), MEASURED_AT_ONCE):
                measures = []
                for entry in entries[start : start + MEASURED_AT_ONCE]:
                    counted[entry] = measure = await self._measures.of(evaluator, entry, self._facts)
                    measures.append(measure)
                    await pauses.pause()
                amounts.add(self._usage, check.total(names, self._selectors, measures))

    def applied_to(self, quota: Object) -> Object:
        """Return the quota with the status that the current state demands. Outdated."""
        if (quota.get("spec") or {}) != self._spec:
            raise Outdated
        hard, held = self._hard, (quota.get("status") or {}).get("used") or {}
        used = self._used()
        kept = amounts.parsed({name: held[name] for name in held if name in hard})
        texts = amounts.texts({**kept, **used})
        for name, amount in kept.items():
            if amount[0] == used.get(name, amount)[0]:
                texts[name] = held[name]  # the same number: keep its notation
        return {**quota, "status": {"hard": hard, "used": texts}}

    def _used(self) -> Usage:
        """Return the usage on the current state."""
        usage = dict(self._usage)
        for evaluator, names in self._evaluators:
            entries = self._entries(evaluator.resource, self._namespace)
            if evaluator.constant is not None:
                amounts.add(usage, check.times(names, self._selectors, evaluator.constant, len(entries)))
                continue
            counted = self._counted[evaluator.resource]
            new, gone = set(entries).difference(counted), counted.keys() - entries
            if len(new) + len(gone) > MEASURED_AT_ONCE or any(len(entry.json) > LARGE for entry in new):
                raise Outdated
            more = (self._measures.at_once(evaluator, entry, self._facts) for entry in new)
            amounts.add(usage, check.total(names, self._selectors, more))
            less = check.total(names, self._selectors, (counted[entry] for entry in gone))
            amounts.add(usage, {name: (-value, family) for name, (value, family) in less.items()})
        return usage


class Measures:
    """The usage of objects, cached for namespaces with quotas."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, dict[str, dict[str, tuple[Entry, Measure]]]] = {}  # by namespace, resource and name

    def _held(self, entry: Entry) -> Measure | None:
        held = self._known.get(entry.key.namespace, {}).get(entry.key.resource, {}).get(entry.key.name)
        return held[1] if held is not None and held[0] is entry else None

    def at_once(self, evaluator: Evaluator, entry: Entry, facts: Facts) -> Measure:
        """Return the usage of an object, also of an earlier revision."""
        return self._held(entry) or evaluator.measure(entry.object(), facts)

    async def of(self, evaluator: Evaluator, entry: Entry, facts: Facts) -> Measure:
        """Do the same, for a large object in the thread; but not if it depends on others, which are read here."""
        if len(entry.json) <= LARGE or not evaluator.keeps:
            return self.at_once(evaluator, entry, facts)
        held = self._held(entry)
        if held is not None:
            return held
        turn = self._store.writes.large.turn(COMPONENT)
        return await turn.read(entry, partial(evaluator.measure, facts=facts))

    async def renew(self, evaluator: Evaluator, namespace: str, facts: Facts) -> None:
        """Measure new and changed objects of a namespace, and forget deleted ones."""
        known: dict[str, tuple[Entry, Measure]] = {}
        if evaluator.constant is not None or not evaluator.keeps:
            return
        pauses = Pauses()
        for entry in self._store.reads.entries(evaluator.resource, namespace):
            await pauses.pause()
            if b'"deletionTimestamp":' not in entry.json:  # the usage of an object in deletion falls with time
                known[entry.key.name] = entry, await self.of(evaluator, entry, facts)
        self._known.setdefault(namespace, {})[evaluator.resource] = known

    def forget(self, namespace: str) -> None:
        self._known.pop(namespace, None)


def _differs(event: Event) -> bool:
    """Return True if a quota must be counted: its limits changed, its status lacks one of them, or its status has only
    now got them. In the last case another replica may be creating an object without charging it."""
    quota = event.entry.object()
    spec, current = quota.get("spec") or {}, quota.get("status") or {}
    hard = spec.get("hard") or {}
    if hard != (current.get("hard") or {}) or any(name not in (current.get("used") or {}) for name in hard):
        return True
    before = event.previous.object() if event.previous is not None else {}
    return spec != before.get("spec") or current.get("hard") != (before.get("status") or {}).get("hard")
