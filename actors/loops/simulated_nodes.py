"""Simulated nodes: Nodes without a machine, with the annotation of kwok, and the Leases by which they tell they live.

    --simulated-nodes 3    node-0, node-1 and node-2 are made at the start, unless they exist; stages make them ready
    kwok.x-k8s.io/node     any Node with this annotation is simulated, whoever made it

A node of ours that is deleted stays away until the next start, so that tests can remove one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import repeat
from typing import Final

import trio

from kubechronicle.actors.loops.edits import NO_CHANGE, create_unless_exists, edit_if_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.retries import each, repeat_pass
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.simulation.scheduling import is_simulated, new_node
from kubechronicle.api.simulation.stages import Stage
from kubechronicle.api.values.objects import Object, ReadOnlyObject
from kubechronicle.eventlog.entries import Entry, Event

COMPONENT: Final = "simulation"
NODES: Final = "nodes"
LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
RENEWAL: Final = 10.0
"""Seconds between two renewals of all Leases, as a kubelet's."""
AT_ONCE: Final = 50
"""Leases that are renewed at once: they commit as one batch."""
RETRY: Final = 1.0  # seconds
NOT_READY: Final = "node.kubernetes.io/not-ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """``nodes``: how many are made. ``schedules``: bind pods, as no kube-scheduler runs. ``stages``: of all kinds."""

    nodes: int
    schedules: bool = True
    stages: Sequence[Stage] = field(default=())


# -- the taint of new nodes --------------------------------------------------------------------------------------------
#
# Admission taints each new node (TaintNodesByCondition). The node lifecycle controller of kube-controller-manager
# removes the taint when the node is ready. Without that controller, this loop does.


def _is_wrongly_tainted(node: ReadOnlyObject) -> bool:
    """Tell whether a simulated node is ready, and has the taint of nodes that are not."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and is_simulated(node) and any(one["key"] == NOT_READY for one in node["spec"].get("taints") or ())


def _without_taint(node: Object) -> Object:
    kept = [one for one in node["spec"].get("taints") or () if one["key"] != NOT_READY]
    spec = {name: value for name, value in node["spec"].items() if name != "taints"}
    return {**node, "spec": {**spec, "taints": kept} if kept else spec}


# -- the loop ----------------------------------------------------------------------------------------------------------


class SimulatedNodes:
    """Makes the nodes, and renews the Leases of all simulated ones."""

    def __init__(self, store: Store, count: int) -> None:
        self._store = store
        self._count = count
        self._nodes = store.registry.builtin("", "v1", NODES)
        self._leases = store.registry.builtin("coordination.k8s.io", "v1", "leases")
        self._names: dict[str, str] = {}
        """Simulated nodes, with their uids."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Make the nodes, report started, and keep the Leases."""
        await each([partial(self._make, number) for number in range(self._count)], at_once=AT_ONCE)
        reflector = Reflector(
            self._store.reads,
            self._nodes,
            component=COMPONENT,
            on_list=self._all,
            on_changes=self._changed,
            delays=repeat(RETRY),
        )
        await self._all()  # so that the first pass finds them
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reflector.run)
            await nursery.start(partial(repeat_pass, self.renew, subject="Leases of nodes", interval=RENEWAL))
            task_status.started()

    async def _make(self, number: int) -> None:
        made = new_node(number)
        name = made["metadata"]["name"]
        if self._store.reads.peek(NODES, "", name) is None:
            target = Target(rt=self._nodes, name=name, manager=COMPONENT)
            await create_unless_exists(self._store, COMPONENT, target, made, cause=NO_CHANGE)

    async def _all(self) -> None:
        self._names.clear()
        for entry in self._store.reads.entries(NODES, ""):
            self._note(entry)

    async def _changed(self, events: Sequence[Event]) -> None:
        for event in events:
            name = event.entry.key.name
            former, entry = self._names.pop(name, ""), self._store.reads.peek(NODES, "", name)
            if entry is not None:
                self._note(entry)
            if self._names.get(name, former) != former:
                await self._renew(name, self._names[name])
            if entry is not None and _is_wrongly_tainted(entry.object()):
                target = Target(rt=self._nodes, name=name, manager=COMPONENT)
                await edit_if_exists(self._store, COMPONENT, target, _without_taint, cause=entry.revision)

    def _note(self, entry: Entry) -> None:
        if is_simulated(entry.object()):
            self._names[entry.key.name] = entry.uid

    async def renew(self) -> None:
        """Renew all Leases, and make those that are missing."""
        await each([partial(self._renew, name, uid) for name, uid in list(self._names.items())], at_once=AT_ONCE)

    async def _renew(self, name: str, uid: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        target = Target(rt=self._leases, namespace=LEASE_NAMESPACE, name=name, manager=COMPONENT)
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        if self._store.reads.peek(self._leases.resource, LEASE_NAMESPACE, name) is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
            metadata = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
            lease: Object = {"metadata": metadata, "spec": spec}
            await create_unless_exists(self._store, COMPONENT, target, lease, cause=NO_CHANGE)
            return

        def renewed(lease: Object) -> Object:
            return {**lease, "spec": {**lease["spec"], **spec}}

        await edit_if_exists(self._store, COMPONENT, target, renewed, cause=NO_CHANGE)
