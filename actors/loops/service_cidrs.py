"""ServiceCIDRs: each gets a finalizer and the condition Ready (kube-controller-manager's service-cidr-controller,
KEP-1880). A deleted one stays while an address in use lies in it and in no other.

    newcidr 10.97.0.0/24, deleted     10.97.0.9 in use             stays; Ready False, Terminating
                                      … and 10.97.0.0/16 exists    removed
                                      no address in use            removed DELETION_GRACE after its deletion: until
                                                                   then other servers may still allocate from it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat

import trio

from kubechronicle.actors.allocation.addresses import ALLOCATOR, IP_ADDRESSES, MANAGED_BY
from kubechronicle.actors.allocation.bands import AddressRange, Network
from kubechronicle.actors.allocation.ranges import SERVICE_CIDRS, is_ready, networks_of
from kubechronicle.actors.loops.edits import edit_if_exists, with_condition
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.pauses import Pauses
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.builtin.common.checks import parse_ip
from kubechronicle.api.values.objects import Object

COMPONENT = "service-cidr-controller"
FINALIZER = "networking.k8s.io/service-cidr-finalizer"
READY = "Kubernetes Service CIDR is ready"
IN_USE = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
DELETION_GRACE = timedelta(seconds=10)
# Seconds until ServiceCIDRs in deletion are checked again: the release of an address is no event of its range.
RETRY_INTERVAL = 2.0


def _utc_now() -> datetime:
    return datetime.now(UTC)


def covers(others: Sequence[Network], network: Network) -> bool:
    """Return True if one of the others holds the whole network."""
    return any(one.version == network.version and network.subnet_of(one) for one in others)  # type: ignore[arg-type]


class ServiceCIDRLoop:
    """``now``: the wall clock, for the time since a deletion."""

    def __init__(self, store: Store, *, now: Callable[[], datetime] = _utc_now) -> None:
        self._store = store
        self._now = now
        self._rt = store.registry.builtin("networking.k8s.io", "v1", "servicecidrs")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow ServiceCIDRs. While one is in deletion, check it every RETRY_INTERVAL seconds."""
        task_status.started()
        reflector = Reflector(
            self._store.reads, self._rt, component=COMPONENT, on_list=self._pass, delays=repeat(RETRY_INTERVAL)
        )
        await reflector.run()

    async def _pass(self) -> float | None:
        return trio.current_time() + RETRY_INTERVAL if await self.check_all() else None

    async def check_all(self) -> int:
        """Check every ServiceCIDR. Return the number that is still in deletion."""
        in_deletion = 0
        for entry in self._store.reads.entries(SERVICE_CIDRS, ""):
            obj = entry.object()
            name, meta = entry.key.name, obj["metadata"]
            if not meta.get("deletionTimestamp"):
                await self._keep(name, obj, entry.revision)
            elif FINALIZER in (meta.get("finalizers") or ()):
                in_deletion += not await self._release(name, obj, entry.revision)
        return in_deletion

    async def _keep(self, name: str, obj: Object, cause: int) -> None:
        if FINALIZER not in (obj["metadata"].get("finalizers") or ()):
            await self._edit(name, lambda held: _with_finalizers(held, lambda known: [*known, FINALIZER]), cause)
        if not is_ready(obj) or not (obj.get("status") or {}).get("conditions"):
            await self._edit(name, lambda held: with_condition(held, "Ready", "True", message=READY), cause, "status")

    async def _release(self, name: str, obj: Object, cause: int) -> bool:
        """Remove the finalizer if no address needs the ServiceCIDR. Return True if removed."""
        # An address that another replica allocated just now must be visible before its range may be removed.
        await self._store.reads.wait_consistent()
        if await self._is_needed(name, obj):
            if is_ready({**obj, "metadata": {}}):
                await self._edit(
                    name,
                    lambda held: with_condition(held, "Ready", "False", reason="Terminating", message=IN_USE),
                    cause,
                    "status",
                )
            return False
        deleted = datetime.strptime(obj["metadata"]["deletionTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        if self._now() - deleted < DELETION_GRACE:
            return False
        await self._edit(
            name, lambda held: _with_finalizers(held, lambda known: [one for one in known if one != FINALIZER]), cause
        )
        return True

    async def _is_needed(self, name: str, obj: Object) -> bool:
        """Return True if an allocated address is in this ServiceCIDR and in no other that stays."""
        staying = [
            network
            for entry in self._store.reads.entries(SERVICE_CIDRS, "")
            if entry.key.name != name and not (other := entry.object())["metadata"].get("deletionTimestamp")
            for network in networks_of(other)
        ]
        open_ranges = [AddressRange(one) for one in networks_of(obj) if not covers(staying, one)]
        if not open_ranges:
            return False
        others = [AddressRange(one) for one in staying]
        pauses = Pauses()
        for entry in self._store.reads.entries(IP_ADDRESSES, ""):
            await pauses.pause()
            address = parse_ip(entry.key.name) if entry.labels.get(MANAGED_BY) == ALLOCATOR else None
            lies_in = address is not None and any(address in one for one in open_ranges)
            if address is not None and lies_in and not any(address in one for one in others):
                return True
        return False

    async def _edit(self, name: str, change: Callable[[Object], Object], cause: int, subresource: str = "") -> None:
        target = Target(rt=self._rt, name=name, manager=COMPONENT, subresource=subresource)
        await edit_if_exists(self._store, COMPONENT, target, change, cause=cause)


def _with_finalizers(obj: Object, change: Callable[[list[str]], list[str]]) -> Object:
    finalizers = change(list(obj["metadata"].get("finalizers") or ()))
    return {**obj, "metadata": {**obj["metadata"], "finalizers": finalizers}}
