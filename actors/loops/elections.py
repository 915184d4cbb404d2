"""Coordinated election of leaders among LeaseCandidates (KEP-4355), under the gate CoordinatedLeaderElection.

A component names itself as a candidate for a Lease. The Lease goes to the best candidate of those that answer:

    LeaseCandidate a, b: leaseName x      no Lease x, or its holder is not the best
    pingTime is set                       a and b have five seconds to renew (renewTime)
    Lease x: holderIdentity a             a new Lease, or one that has expired
    Lease x: preferredHolder a            b holds it, and should release it

Each step follows from the stored objects alone, so several servers may take it. A candidate that has not renewed for
half an hour is deleted. Source: kube-apiserver ``pkg/controlplane/controller/leaderelection``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import trio

from kubechronicle.actors.loops.edits import NO_CHANGE, create_unless_exists, delete_if_exists, edit_if_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.retries import repeat_pass
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.builtin.coordination import OLDEST
from kubechronicle.api.cel.library.semver import Version, VersionError, parse
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.values.objects import Object, ReadOnlyObject
from kubechronicle.eventlog.entries import Entry, Event

log = logging.getLogger(__name__)

GATE: Final = "CoordinatedLeaderElection"
COMPONENT: Final = "leader-election-controller"
VOTING: Final = timedelta(seconds=5)
"""The time in which candidates have to answer a ping."""
VALID: Final = timedelta(minutes=30)
"""The time without a renewal after which a candidate is none any more."""
LEASE_SECONDS: Final = 5
AGAIN: Final = 5.0
"""Seconds until a Lease is looked at again: it may have expired."""
CLEANING: Final = 30 * 60.0
"""Seconds between two deletions of expired candidates."""
FIRST_RETRY: Final = 0.5
LONGEST_RETRY: Final = 60.0

LeaseKey = tuple[str, str]
"""Namespace and name of a Lease."""

Now = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


# -- decisions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionStep:
    """The next step of an election.

    ``pinged``: candidates to be pinged.
    ``elected``: the strategy and, if it is Kubernetes' own, the best candidate; None: nobody yet.
    ``again``: whether to look again after AGAIN seconds; otherwise only after a change.
    """

    pinged: Sequence[ReadOnlyObject] = ()
    elected: tuple[str, str | None] | None = None
    again: bool = True


WAIT: Final = ElectionStep()
UNTIL_CHANGED: Final = ElectionStep(again=False)


def next_step(candidates: Sequence[ReadOnlyObject], lease: ReadOnlyObject | None, now: datetime) -> ElectionStep:
    """Return the next step of the election among these candidates for a Lease."""
    candidates = [each for each in candidates if not is_expired(each, now)]
    if not candidates:
        return UNTIL_CHANGED
    if not _is_needed(candidates, lease, now):
        return WAIT
    pinged, waiting = [], False
    for each in candidates:
        ping, renewed = time_of(each, "pingTime"), time_of(each, "renewTime")
        assert renewed is not None, "those without one have expired"
        if ping is not None and ping + VOTING > now and renewed < ping:
            waiting = True
        elif renewed + VOTING <= now and (ping is None or (ping + VOTING < now and renewed >= ping)):
            pinged.append(each)
    if pinged or waiting:
        return ElectionStep(pinged=tuple(pinged))
    voters = [each for each in candidates if (time_of(each, "renewTime") or now) + VOTING > now]
    strategy = best_strategy(voters)
    if strategy is None:
        return UNTIL_CHANGED
    best = best_candidate(voters) if strategy == OLDEST else None
    return ElectionStep(elected=(strategy, None if best is None else best["metadata"]["name"]))


def _is_needed(candidates: Sequence[ReadOnlyObject], lease: ReadOnlyObject | None, now: datetime) -> bool:
    if lease is None or lease_expired(lease, now) or not lease["spec"].get("holderIdentity"):
        return True
    if any((time_of(each, "renewTime") or now) + VALID / 2 < now for each in candidates):
        return True  # so that candidates which still exist renew in time
    best = best_candidate(candidates) if best_strategy(candidates) == OLDEST else None
    return best is not None and best["metadata"]["name"] != lease["spec"]["holderIdentity"]


def time_of(obj: ReadOnlyObject, name: str) -> datetime | None:
    """Return a time of the spec of a candidate or Lease."""
    text = (obj.get("spec") or {}).get(name)
    return datetime.fromisoformat(text) if text else None


def is_expired(candidate: ReadOnlyObject, now: datetime) -> bool:
    """Tell whether a candidate has not renewed for too long."""
    renewed = time_of(candidate, "renewTime")
    return renewed is None or renewed + VALID < now


def lease_expired(lease: ReadOnlyObject, now: datetime) -> bool:
    """Tell whether the holder of a Lease has not renewed it in time."""
    renewed, seconds = time_of(lease, "renewTime"), (lease.get("spec") or {}).get("leaseDurationSeconds")
    return renewed is None or seconds is None or renewed + timedelta(seconds=seconds) < now


def _version(candidate: ReadOnlyObject, name: str) -> Version:
    try:
        return parse(candidate["spec"].get(name, ""))
    except VersionError:
        return Version(0, 0, 0)


def best_strategy(candidates: Sequence[ReadOnlyObject]) -> str | None:
    """Return the strategy that the candidates of the newest program want; None if they differ, or there is none."""
    newest: Sequence[ReadOnlyObject] = ()
    for each in candidates:
        order = _version(each, "binaryVersion").compare(_version(newest[0], "binaryVersion")) if newest else 1
        if order >= 0:
            newest = [each] if order > 0 else [*newest, each]
    strategies = {each["spec"].get("strategy", "") for each in newest}
    if len(strategies) > 1:
        log.warning("candidates of one version differ in their strategies: %s", ", ".join(sorted(strategies)))
    return strategies.pop() if len(strategies) == 1 else None


def best_candidate(candidates: Iterable[ReadOnlyObject]) -> ReadOnlyObject | None:
    """Return the candidate of the oldest emulated version, then of the oldest program, then the oldest object."""
    best: ReadOnlyObject | None = None
    for each in candidates:
        if best is None or _is_better(each, best):
            best = each
    return best


def _is_better(one: ReadOnlyObject, other: ReadOnlyObject) -> bool:
    for name in ("emulationVersion", "binaryVersion"):
        order = _version(one, name).compare(_version(other, name))
        if order:
            return order < 0
    created = (each["metadata"].get("creationTimestamp") or "" for each in (one, other))
    return next(created) < next(created)


def new_lease(strategy: str, holder: str | None, now: datetime) -> Object:
    """Return the spec of a Lease after an election."""
    spec: Object = {"strategy": strategy, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": micro_time(now)}
    return spec if holder is None else {**spec, "holderIdentity": holder}


def changed_lease(lease: Object, strategy: str, holder: str | None, now: datetime) -> Object:
    """Return an existing Lease after an election. A holder in office is asked to release it for another."""
    spec = lease.get("spec") or {}
    held, changes = spec.get("holderIdentity") or "", dict[str, Any](strategy=strategy)
    if holder is not None and (not held or (lease_expired(lease, now) and held != holder)):
        changes |= new_lease(strategy, holder, now) | {"preferredHolder": None, "acquireTime": None}
    elif holder is not None and held != holder:
        changes["preferredHolder"] = holder
    spec = {name: value for name, value in {**spec, **changes}.items() if value is not None}
    return {**lease, "spec": spec}


def micro_time(now: datetime) -> str:
    """Return a time as MicroTime prints it."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# -- the loop ---------------------------------------------------------------------------------------------------------


class ElectionLoop:
    """Elects leaders, and deletes expired candidates."""

    def __init__(self, store: Store, *, now: Now = utc_now) -> None:
        self._store = store
        self._now = now
        self._leases = store.registry.builtin("coordination.k8s.io", "v1", "leases")
        self._candidates = store.registry.builtin("coordination.k8s.io", "v1beta1", "leasecandidates")
        self._queue: WorkQueue[LeaseKey] = WorkQueue(
            first=FIRST_RETRY, longest=LONGEST_RETRY, measures=store.queue(COMPONENT)
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow candidates and Leases until cancelled."""
        candidates = Reflector(
            self._store.reads, self._candidates, component=COMPONENT, on_list=self._all, on_changes=self._candidate
        )
        leases = Reflector(
            self._store.reads, self._leases, component=COMPONENT, on_list=self._all, on_changes=self._lease
        )
        async with trio.open_nursery() as nursery:
            self._queue.start(nursery, self._reconcile, component=COMPONENT)
            nursery.start_soon(leases.run)
            nursery.start_soon(partial(repeat_pass, self._clean, subject="expired candidates", interval=CLEANING))
            task_status.started()
            await candidates.run()

    def _entries(self) -> Sequence[Entry]:
        return self._store.reads.entries(self._candidates.resource, "")

    async def _all(self) -> None:
        self._add(entry.object() for entry in self._entries())

    def _add(self, candidates: Iterable[ReadOnlyObject]) -> None:
        for each in candidates:
            ping, renewed = time_of(each, "pingTime"), time_of(each, "renewTime")
            if ping is None or renewed is None or renewed >= ping:  # otherwise its answer is awaited
                self._queue.add((each["metadata"]["namespace"], (each.get("spec") or {}).get("leaseName", "")))

    async def _candidate(self, events: Sequence[Event]) -> None:
        self._add(event.entry.object() for event in events)

    async def _lease(self, events: Sequence[Event]) -> None:
        for event in events:
            self._queue.add((event.entry.key.namespace, event.entry.key.name))

    async def _reconcile(self, key: LeaseKey) -> float:
        """Take the next step of an election. Return the seconds until the next one, 0: after a change."""
        namespace, name = key
        in_namespace = (entry.object() for entry in self._store.reads.entries(self._candidates.resource, namespace))
        candidates = [each for each in in_namespace if (each.get("spec") or {}).get("leaseName") == name]
        if not candidates:
            return 0
        held = self._store.reads.peek(self._leases.resource, namespace, name)
        now = self._now()
        step = next_step(candidates, None if held is None else held.object(), now)
        for each in step.pinged:
            await self._ping(each, now)
        if step.elected is not None:
            newest = max(int(each["metadata"]["resourceVersion"]) for each in candidates)
            await self._elect(key, *step.elected, now, cause=newest)
        return AGAIN if step.again else 0

    async def _ping(self, candidate: ReadOnlyObject, now: datetime) -> None:
        def pinged(found: Object) -> Object:
            sent = time_of(found, "pingTime")
            if sent is not None and sent + VOTING > now:
                return found  # another server has asked
            return {**found, "spec": {**found["spec"], "pingTime": micro_time(now)}}

        meta = candidate["metadata"]
        target = Target(rt=self._candidates, namespace=meta["namespace"], name=meta["name"], manager=COMPONENT)
        await edit_if_exists(self._store, COMPONENT, target, pinged, cause=int(meta["resourceVersion"]))

    async def _elect(self, key: LeaseKey, strategy: str, holder: str | None, now: datetime, *, cause: int) -> None:
        namespace, name = key
        target = Target(rt=self._leases, namespace=namespace, name=name, manager=COMPONENT)
        if self._store.reads.peek(self._leases.resource, namespace, name) is None:
            made = {"metadata": {"namespace": namespace, "name": name}, "spec": new_lease(strategy, holder, now)}
            await create_unless_exists(self._store, COMPONENT, target, made, cause=cause, unless_namespace_ends=True)
            log.info("created Lease %s/%s for %s", namespace, name, holder or "a holder that another program elects")
            return
        change = partial(changed_lease, strategy=strategy, holder=holder, now=now)
        await edit_if_exists(self._store, COMPONENT, target, change, cause=cause)

    async def _clean(self) -> None:
        """Delete expired candidates."""
        now = self._now()
        for entry in [each for each in self._entries() if is_expired(each.object(), now)]:
            target = Target(rt=self._candidates, namespace=entry.key.namespace, name=entry.key.name)
            options = DeleteOptions(precondition_resource_version=str(entry.revision))
            await delete_if_exists(self._store, COMPONENT, target, options, cause=NO_CHANGE)
