"""ServiceCIDRs: a finalizer as long as they are there, the condition Ready, and no end while an address of theirs is in
use that no other covers (kube-controller-manager's service-cidr-controller, KEP-1880).

    newcidr 10.97.0.0/24, deleted     10.97.0.9 in use              Ready False, Terminating
                                      … and 10.97.0.0/16 is there   goes
                                      no address in use             goes, ten seconds after it was deleted: until then
                                                                    other servers may not know yet that it gives none
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import trio
from msgspec.structs import replace

from kubechronicle.actors.allocation.addresses import ALLOCATOR, IP_ADDRESSES, MANAGED_BY
from kubechronicle.actors.allocation.bands import AddressRange, Network
from kubechronicle.actors.allocation.ranges import SERVICE_CIDRS, is_ready, networks_of
from kubechronicle.actors.errors import ActorError
from kubechronicle.actors.loops.conditions import with_condition
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.builtin.checks import parse_ip
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.errors import Compacted, LogError

log = logging.getLogger(__name__)

COMPONENT = "service-cidr-controller"
FINALIZER = "networking.k8s.io/service-cidr-finalizer"
READY = "Kubernetes Service CIDR is ready"
IN_USE = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
DELETION_GRACE = timedelta(seconds=10)
# What is on its way out is looked at again this often: the end of an address is no event of the range.
RETRY_INTERVAL = 2.0


def _utc_now() -> datetime:
    return datetime.now(UTC)


def covers(others: Sequence[Network], network: Network) -> bool:
    """Whether one of the others holds the whole network."""
    return any(one.version == network.version and network.subnet_of(one) for one in others)  # type: ignore[arg-type]


class ServiceCIDRLoop:
    """``now`` is the wall clock, for the time since a deletion."""

    def __init__(self, store: Store, *, now: Callable[[], datetime] = _utc_now) -> None:
        self._store = store
        self._now = now
        rt = store.registry.known("networking.k8s.io", "v1", "servicecidrs")
        assert rt is not None, "servicecidrs are a built-in resource"
        self._rt = rt

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch ServiceCIDRs; while one is on its way out, look again and again."""
        task_status.started()
        while True:
            try:
                watching = await self._store.reads.watch(self._rt, Selection(), revision=None)
                while True:
                    left = await self.check_all()
                    await watching.cursor.next_batch(trio.current_time() + RETRY_INTERVAL if left else None)
            except Compacted:
                continue
            except (StatusError, LogError, ActorError) as error:
                log.warning("ServiceCIDRs could not be looked after, trying again: %s", error)
                await trio.sleep(RETRY_INTERVAL)

    async def check_all(self) -> int:
        """Look after each; how many are on their way out still."""
        left = 0
        for entry in self._store.reads.entries(SERVICE_CIDRS, ""):
            obj = entry.object()
            name, meta = entry.key.name, obj["metadata"]
            if not meta.get("deletionTimestamp"):
                await self._keep(name, obj)
            elif FINALIZER in (meta.get("finalizers") or ()):
                left += not await self._end(name, obj)
        return left

    async def _keep(self, name: str, obj: Object) -> None:
        if FINALIZER not in (obj["metadata"].get("finalizers") or ()):
            await self._edit(name, lambda held: _with_finalizers(held, lambda known: [*known, FINALIZER]))
        if not is_ready(obj) or not (obj.get("status") or {}).get("conditions"):
            await self._edit(name, lambda held: with_condition(held, "Ready", "True", message=READY), "status")

    async def _end(self, name: str, obj: Object) -> bool:
        """Let go of it if nobody needs it any more; whether it has gone."""
        # An address another replica gave out just now must be seen before its range may go.
        await self._store.reads.wait_consistent()
        if self._is_needed(name, obj):
            if is_ready({**obj, "metadata": {}}):
                await self._edit(
                    name,
                    lambda held: with_condition(held, "Ready", "False", reason="Terminating", message=IN_USE),
                    "status",
                )
            return False
        deleted = datetime.strptime(obj["metadata"]["deletionTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        if self._now() - deleted < DELETION_GRACE:
            return False
        await self._edit(
            name, lambda held: _with_finalizers(held, lambda known: [one for one in known if one != FINALIZER])
        )
        return True

    def _is_needed(self, name: str, obj: Object) -> bool:
        """An address that was given out lies in it and in no other that stays."""
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
        for entry in self._store.reads.entries(IP_ADDRESSES, ""):
            address = parse_ip(entry.key.name) if entry.labels.get(MANAGED_BY) == ALLOCATOR else None
            lies_in = address is not None and any(address in one for one in open_ranges)
            if address is not None and lies_in and not any(address in one for one in others):
                return True
        return False

    async def _edit(self, name: str, change: Callable[[Object], Object], subresource: str = "") -> None:
        target = replace(Target(rt=self._rt, name=name, manager=COMPONENT), subresource=subresource)
        try:
            await self._store.writes.edit(system_caller(COMPONENT, "update"), target, change)
        except StatusError as error:
            if error.code != 404:
                raise


def _with_finalizers(obj: Object, change: Callable[[list[str]], list[str]]) -> Object:
    finalizers = change(list(obj["metadata"].get("finalizers") or ()))
    return {**obj, "metadata": {**obj["metadata"], "finalizers": finalizers}}
