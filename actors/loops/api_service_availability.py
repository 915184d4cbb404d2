"""The condition Available of APIServices of other servers (kube-aggregator's available controller).

    Service missing                             False   ServiceNotFound
    it has no such port                         False   ServicePortError
    it has no EndpointSlice                     False   EndpointsNotFound
    none of them has a ready endpoint there     False   MissingEndpoints
    no answer at /apis/GROUP/VERSION            False   FailedDiscoveryCheck
    otherwise                                   True    Passed

Endpoints count for Services of type ClusterIP only. Each APIService has a task of its own, so that a slow server
delays no other. It checks again after a change of the APIService, of its Service or its endpoints, after RECHECK
seconds, and after a failure sooner. The reasons ServiceAccessError and EndpointsAccessError do not occur: both are
read from memory. Source: kube-aggregator ``pkg/controllers/status/remote``.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import trio

from kubechronicle.actors.loops.edits import NO_CHANGE, edit_if_exists, state_or_deletion, with_condition
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.retries import RETRIED
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.registry.api_services import AVAILABLE, RESOURCE, ApiService, ServiceReference, api_service
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.restarts import start_apart

log = logging.getLogger(__name__)

COMPONENT: Final = "available-controller"
MANAGER: Final = "kube-apiserver"
SERVICES: Final = "services"
SLICES: Final = "endpointslices.discovery.k8s.io"
SERVICE_LABEL: Final = "kubernetes.io/service-name"
RECHECK: Final = 30.0
"""Seconds after which a passed check is repeated."""
FIRST_RETRY: Final = 1.0
"""Seconds after the first failed check; each further delay is twice as long, up to RECHECK."""
MOST_CHECKS: Final = 16
"""Checks at a time."""

Check = Callable[[ApiService], Awaitable[str]]
"""Requests the resource list of an APIService. Returns "" if that succeeds, else the reason."""


@dataclass(frozen=True, slots=True)
class ServiceAvailability:
    """The state, reason and message of a condition Available."""

    state: str
    reason: str
    message: str


PASSED: Final = ServiceAvailability("True", "Passed", "all checks passed")


@dataclass(slots=True)
class AvailabilityCounts:
    """Numbers for metrics: whether each APIService is unavailable, and how often it became so, by name and reason."""

    unavailable: dict[str, bool] = field(default_factory=dict)
    transitions: dict[tuple[str, str], int] = field(default_factory=dict)

    def observe(self, one: ApiService, found: ServiceAvailability) -> None:
        is_available = found.state == "True"
        self.unavailable[one.name] = not is_available
        if one.available and not is_available:
            self.transitions[one.name, found.reason] = self.transitions.get((one.name, found.reason), 0) + 1


@dataclass(slots=True)
class _Watched:
    """The task of one APIService. ``one``: without its condition. ``changed``: replaced before each check."""

    one: ApiService
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    changed: trio.Event = field(default_factory=trio.Event)

    def wake(self) -> None:
        self.changed.set()


class ApiServiceAvailability:
    """Keeps the conditions. ``check``: requests a resource list."""

    def __init__(self, store: Store, check: Check, counts: AvailabilityCounts) -> None:
        self._store = store
        self._check = check
        self._counts = counts
        self._rt = store.registry.builtin("apiregistration.k8s.io", "v1", "apiservices")
        self._watched: dict[str, _Watched] = {}
        self._turns = trio.Semaphore(MOST_CHECKS)
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow APIServices, Services and EndpointSlices until cancelled."""
        self._watched.clear()
        registry = self._store.registry
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for rt, changed in (
                (registry.storage(SERVICES), self._services_changed),
                (registry.storage(SLICES), self._slices_changed),
            ):
                if rt is not None:
                    nursery.start_soon(Reflector(
                        self._store.reads, rt, component=COMPONENT, on_list=self._wake_all, on_changes=changed
                    ).run)  # fmt: skip
            api_services = Reflector(
                self._store.reads, self._rt, component=COMPONENT, on_list=self._all, on_changes=self._changed
            )
            task_status.started()
            await api_services.run()

    async def _all(self) -> None:
        entries = self._store.reads.entries(RESOURCE, "")
        for name in self._watched.keys() - {entry.key.name for entry in entries}:
            self._forget(name)
        for entry in entries:
            self._take(api_service(entry.object()))

    async def _changed(self, events: Sequence[Event]) -> None:
        for name in {event.entry.key.name for event in events}:
            entry = self._store.reads.peek(RESOURCE, "", name)
            if entry is None:
                self._forget(name)
            else:
                self._take(api_service(entry.object()))

    def _take(self, one: ApiService) -> None:
        if one.service is None:
            self._forget(one.name)
            return
        wanted, watched = replace(one, available=False), self._watched.get(one.name)
        if watched is not None:
            if watched.one != wanted:
                watched.one = wanted
                watched.wake()
            return
        watched = self._watched[one.name] = _Watched(wanted)
        assert self._nursery is not None
        start_apart(self._nursery, self._keep, one.name, watched)

    def _forget(self, name: str) -> None:
        watched = self._watched.pop(name, None)
        self._counts.unavailable.pop(name, None)
        if watched is not None:
            watched.scope.cancel()

    async def _wake_all(self) -> None:
        for watched in self._watched.values():
            watched.wake()

    async def _services_changed(self, events: Sequence[Event]) -> None:
        self._wake((event.entry.key.namespace, event.entry.key.name) for event in events)

    async def _slices_changed(self, events: Sequence[Event]) -> None:
        states = [state for event in events for state in (event.entry, event.previous) if state is not None]
        self._wake((state.key.namespace, state.labels.get(SERVICE_LABEL, "")) for state in states)

    def _wake(self, services: Iterable[tuple[str, str]]) -> None:
        changed = set(services)
        for watched in self._watched.values():
            service = watched.one.service
            if service is not None and (service.namespace, service.name) in changed:
                watched.wake()

    async def _keep(self, name: str, watched: _Watched) -> None:
        """Check one APIService until it is forgotten."""
        with watched.scope:
            failures = 0
            while True:
                watched.changed = trio.Event()
                try:
                    async with self._turns:
                        passed = await self._check_once(name)
                except RETRIED as error:
                    log.warning("the condition of APIService %s could not be written: %s", name, error)
                    passed = False
                failures = 0 if passed else failures + 1
                delay = RECHECK if passed else min(FIRST_RETRY * 2 ** min(failures - 1, 10), RECHECK)
                with trio.move_on_after(delay):
                    await watched.changed.wait()

    async def _check_once(self, name: str) -> bool:
        """Check and write the condition if it differs. Return False if the check is to be repeated soon."""
        entry = self._store.reads.peek(RESOURCE, "", name)
        if entry is None:
            return True
        held = entry.object()
        one = api_service(held)
        if one.service is None:
            return True
        found, cause = self._by_objects(one.service), self._cause(one.service)
        if found is None:
            problem = await self._check(one)
            found = ServiceAvailability("False", "FailedDiscoveryCheck", problem) if problem else PASSED
            cause = NO_CHANGE
        self._counts.observe(one, found)

        def change(current: Object) -> Object:
            if current["spec"] != held["spec"]:
                return current  # it is checked again
            return with_condition(current, AVAILABLE, found.state, reason=found.reason, message=found.message)

        if change(held) != held:
            log.info("APIService %s: %s", name, found.message, extra={"reason": found.reason})
            target = Target(rt=self._rt, name=name, subresource="status", manager=MANAGER)
            await edit_if_exists(self._store, COMPONENT, target, change, cause=cause)
        return found.reason != "FailedDiscoveryCheck"

    def _cause(self, service: ServiceReference) -> int:
        """Return the revision of the newest change of the objects that lead to a server (loops/edits.py)."""
        reads = self._store.reads
        entry = reads.peek(SERVICES, service.namespace, service.name)
        slices = [
            each.revision
            for each in reads.entries(SLICES, service.namespace)
            if each.labels.get(SERVICE_LABEL) == service.name
        ]
        return max(state_or_deletion(reads, entry, SERVICES, service.namespace, service.name), *slices, NO_CHANGE)

    def _by_objects(self, service: ServiceReference) -> ServiceAvailability | None:
        """Return why the Service cannot be reached as its objects tell; None if they do not tell."""
        reads = self._store.reads
        entry = reads.peek(SERVICES, service.namespace, service.name)
        slices = [
            each.object()
            for each in reads.entries(SLICES, service.namespace)
            if each.labels.get(SERVICE_LABEL) == service.name
        ]
        return by_objects(service, None if entry is None else entry.object(), slices)


def by_objects(
    reference: ServiceReference, service: Mapping[str, Any] | None, slices: Sequence[Mapping[str, Any]]
) -> ServiceAvailability | None:
    """Return why a Service cannot be reached as its objects tell; None if they do not tell."""
    shown = f'service/{reference.name} in "{reference.namespace}"'
    if service is None:
        return ServiceAvailability("False", "ServiceNotFound", f"{shown} is not present")
    spec = service.get("spec") or {}
    if (spec.get("type") or "ClusterIP") != "ClusterIP":
        return None
    port = next((one for one in spec.get("ports") or () if one.get("port") == reference.port), None)
    if port is None:
        return ServiceAvailability("False", "ServicePortError", f"{shown} is not listening on port {reference.port}")
    if not slices:
        return ServiceAvailability("False", "EndpointsNotFound", f"cannot find endpointslices for {shown}")
    port_name = port.get("name", "")
    if not any(_is_ready(one, port_name) for one in slices):
        message = f'endpointslices for {shown} have no addresses with port name "{port_name}"'
        return ServiceAvailability("False", "MissingEndpoints", message)
    return None


def _is_ready(endpoint_slice: Mapping[str, Any], port_name: str) -> bool:
    ready = [(one.get("conditions") or {}).get("ready") is not False for one in endpoint_slice.get("endpoints") or ()]
    ports = endpoint_slice.get("ports") or ()
    return any(ready) and any(one.get("name", "") == port_name and one.get("port") for one in ports)
