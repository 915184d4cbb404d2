"""A scheduler for clusters without kube-scheduler: binds waiting pods to nodes (api/simulation/scheduling.py).

One worker decides about one pod after the other, on nodes with the loads of all bound pods. So no node is given away
twice. A pod that fits nowhere gets the condition PodScheduled False, and is tried again when a node or a pod changes:

    pod a    0/3 nodes are available: 3 Insufficient cpu.      waits
    pod b    deleted on node-1                                 a is tried again
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import repeat
from typing import Final

import trio

from kubechronicle.actors.loops.edits import edit_if_exists, with_condition
from kubechronicle.actors.loops.event_recorder import EventRecorder
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.simulated_nodes import NODES
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.pauses import Pauses
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.simulation.scheduling import SCHEDULER, Load, NodeState, choose, is_waiting, load_of, node_state
from kubechronicle.api.subresources import binding as pod_binding
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, Event

log = logging.getLogger(__name__)

COMPONENT: Final = "simulated-scheduler"
PODS: Final = "pods"
ENDED: Final = ("Succeeded", "Failed")
UNSCHEDULABLE: Final = "Unschedulable"
FIRST_RETRY, LONGEST_RETRY = 0.2, 10.0  # seconds
GONE: Final = (404, 409)
"""Answers to a binding of a pod that is gone, bound or being deleted."""

PodKey = tuple[str, str]
"""Namespace and name."""


class SchedulerLoop:
    """The control loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pods = store.registry.builtin("", "v1", PODS)
        self._nodes: dict[str, NodeState] = {}
        self._loads: dict[str, dict[PodKey, Load]] = {}
        """The loads of pods, by node; also of nodes that do not exist yet."""
        self._places: dict[PodKey, str] = {}
        """The node of each bound pod."""
        self._waiting: set[PodKey] = set()
        """Pods that fitted nowhere."""
        self._events = EventRecorder(store, SCHEDULER)
        self._queue: WorkQueue[PodKey] = WorkQueue(
            first=FIRST_RETRY, longest=LONGEST_RETRY, measures=store.queue(COMPONENT)
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow nodes and pods, and bind pods."""
        nodes = Reflector(
            self._store.reads,
            self._store.registry.builtin("", "v1", NODES),
            component=COMPONENT,
            on_list=self._all_nodes,
            on_changes=self._changed_nodes,
            delays=repeat(1.0),
        )
        pods = Reflector(
            self._store.reads,
            self._pods,
            component=COMPONENT,
            on_list=self._all_pods,
            on_changes=self._changed_pods,
            delays=repeat(1.0),
        )
        async with trio.open_nursery() as nursery:
            self._queue.start(nursery, self._schedule, component=COMPONENT)
            nursery.start_soon(nodes.run)
            task_status.started()
            await pods.run()

    # -- following ----------------------------------------------------------------------------------------------------

    async def _all_nodes(self) -> None:
        self._nodes.clear()
        for entry in self._store.reads.entries(NODES, ""):
            self._note_node(entry)
        self._try_again()

    async def _changed_nodes(self, events: Iterable[Event]) -> None:
        for event in events:
            entry = self._store.reads.peek(NODES, "", event.entry.key.name)
            if entry is None:
                self._nodes.pop(event.entry.key.name, None)
            else:
                self._note_node(entry)
        self._try_again()

    def _note_node(self, entry: Entry) -> None:
        name = entry.key.name
        self._nodes[name] = node_state(entry.object(), self._loads.setdefault(name, {}))

    async def _all_pods(self) -> None:
        for loads in self._loads.values():
            loads.clear()
        self._places.clear()
        pauses = Pauses()
        for entry in self._store.reads.entries(PODS, ""):
            self._note_pod((entry.key.namespace, entry.key.name), entry)
            await pauses.pause()

    async def _changed_pods(self, events: Iterable[Event]) -> None:
        freed = False
        for event in events:
            _, namespace, name = event.entry.key
            freed |= self._note_pod((namespace, name), self._store.reads.peek(PODS, namespace, name))
        if freed:
            self._try_again()

    def _note_pod(self, key: PodKey, entry: Entry | None) -> bool:
        """Note where a pod is, or queue it if it waits. Return whether it has left a node."""
        node = entry.fields.get("spec.nodeName", "") if entry is not None else ""
        if entry is not None and not node:
            if is_waiting(entry.object()):
                self._queue.add(key, cause=entry.revision)
            return False
        self._waiting.discard(key)
        if entry is None or entry.fields.get("status.phase") in ENDED:
            return self._loads.get(self._places.pop(key, ""), {}).pop(key, None) is not None
        if self._places.get(key) != node:
            self._place(key, node, load_of(entry.object()))
        return False

    def _place(self, key: PodKey, node: str, load: Load) -> None:
        self._loads.get(self._places.get(key, ""), {}).pop(key, None)
        self._places[key] = node
        self._loads.setdefault(node, {})[key] = load

    def _try_again(self) -> None:
        for key in list(self._waiting):
            self._queue.add(key)
        self._waiting.clear()

    # -- deciding -----------------------------------------------------------------------------------------------------

    async def _schedule(self, key: PodKey) -> float:
        """Bind a pod, or say why it fits nowhere."""
        entry = self._store.reads.peek(PODS, *key)
        pod = entry.object() if entry is not None else None
        if entry is None or pod is None or not is_waiting(pod):
            return 0
        node, why = choose(pod, self._nodes.values())
        if not node:
            self._waiting.add(key)
            await self._report(entry, pod, why)
            return 0
        self._place(key, node, load_of(pod))
        try:
            await self._bind(entry, node)
        except BaseException:
            self._loads[node].pop(key, None)
            self._places.pop(key, None)
            raise
        return 0

    async def _bind(self, entry: Entry, node: str) -> None:
        _, namespace, name = entry.key
        target = Target(rt=self._pods, namespace=namespace, name=name, subresource="binding", manager=COMPONENT)
        metadata = {"name": name, "namespace": namespace, "uid": entry.uid}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"name": node}}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        caller = system_caller(COMPONENT, "bind", cause=entry.revision)
        try:
            await self._store.writes.rewrite(
                caller, target, lambda pod: pod_binding.bound(pod, binding, now=now), admitted=binding, reviewed=target
            )
        except StatusError as error:
            if error.code not in GONE:
                raise
            log.info("pod %s/%s was not bound: %s", namespace, name, error)

    async def _report(self, entry: Entry, pod: Object, why: str) -> None:
        """Tell in the pod's status and in an Event why it is not bound."""
        told = with_condition(pod, pod_binding.SCHEDULED, "False", reason=UNSCHEDULABLE, message=why)
        if told == pod:
            return
        _, namespace, name = entry.key
        target = Target(rt=self._pods, namespace=namespace, name=name, subresource="status", manager=COMPONENT)

        def change(held: Object) -> Object:
            return with_condition(held, pod_binding.SCHEDULED, "False", reason=UNSCHEDULABLE, message=why)

        await edit_if_exists(self._store, COMPONENT, target, change, cause=entry.revision)
        await self._events.warn(entry, "FailedScheduling", why)
