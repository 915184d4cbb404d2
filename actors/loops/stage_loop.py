"""The loop that leads simulated nodes, their pods and other objects through Stages (api/simulation/stages.py).

    pod bound to node-0      a simulated node: the Stage pod-running matches, its status is patched
    pod bound to a real one  left to its kubelet
    Node, no annotation      left alone
    other kinds              every object that a Stage selects

A step is taken once its delay has passed, counted from the moment at which the Stage was chosen for the object. The
choice holds until the step is taken, or the Stage does not match any more.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple

import orjson
import trio

from kubechronicle.actors.loops.edits import delete_if_exists, edit_if_exists
from kubechronicle.actors.loops.event_recorder import EventRecorder
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.simulated_nodes import COMPONENT, NODES
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.pauses import Pauses
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.codecs import yaml
from kubechronicle.api.codecs.errors import DecodeError
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.simulation.scheduling import is_simulated
from kubechronicle.api.simulation.stages import PATCH_TYPES, Patch, Stage, chosen, functions
from kubechronicle.api.simulation.templates import TemplateError
from kubechronicle.api.values.objects import Object, ReadOnlyObject
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.records import Key

PODS: Final = "pods"
POD_NETWORK: Final = ipaddress.IPv4Network("10.244.0.0/16")
NODE_ADDRESS: Final = "127.0.0.1"
KUBELET_PORT: Final = 10250
WORKERS: Final = 8
FIRST_RETRY, LONGEST_RETRY = 0.2, 30.0  # seconds
SOON: Final = 0.001
"""Seconds until the next step of an object whose Stage demands it at once."""


class _Step(NamedTuple):
    """``due``: trio's time."""

    uid: str
    stage: Stage
    due: float


class PodAddresses:
    """The addresses of simulated pods, by uid. One is used again after its pod has gone."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._taken: set[str] = set()
        self._next = 1

    def note(self, uid: str, address: str) -> None:
        """Keep the address that a pod has already."""
        if address and address != NODE_ADDRESS and uid not in self._of:
            self._of[uid] = address
            self._taken.add(address)

    def release(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._taken.discard(self._of.pop(uid, ""))

    def address(self, uid: str) -> str:
        """Return the address of a pod, a free one if it has none; "" if none is free."""
        for _ in range(POD_NETWORK.num_addresses - 2) if uid not in self._of else ():
            candidate = str(POD_NETWORK[self._next])
            self._next = self._next % (POD_NETWORK.num_addresses - 2) + 1
            if candidate not in self._taken:
                self.note(uid, candidate)
                break
        return self._of.get(uid, "")


class StageLoop:
    """``version``: of the simulation, which nodes show as their kubelet's."""

    def __init__(
        self,
        store: Store,
        stages: Sequence[Stage],
        *,
        version: str,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._version = version
        self._chance = chance
        self._stages: dict[str, list[Stage]] = {}
        self._types: dict[str, ResourceType] = {}
        for stage in stages:
            rt = store.registry.by_api_version(stage.api_version, stage.kind)
            if rt is not None:
                self._stages.setdefault(rt.resource, []).append(stage)
                self._types[rt.resource] = rt
        self._steps: dict[Key, _Step] = {}
        self._addresses = PodAddresses()
        self._simulated: set[str] = set()
        self._events = EventRecorder(store, COMPONENT)
        self._queue: WorkQueue[Key] = WorkQueue(
            first=FIRST_RETRY, longest=LONGEST_RETRY, measures=store.queue(COMPONENT)
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the kinds that have Stages."""
        followed = {**self._types, NODES: self._store.registry.builtin("", "v1", NODES)}
        async with trio.open_nursery() as nursery:
            self._queue.start(nursery, self._reconcile, workers=WORKERS, component=COMPONENT)
            task_status.started()
            for resource, rt in followed.items():
                reflector = Reflector(
                    self._store.reads,
                    rt,
                    component=COMPONENT,
                    on_list=partial(self._all, resource),
                    on_changes=partial(self._changed, resource),
                    delays=repeat(1.0),
                )
                nursery.start_soon(reflector.run)

    # -- following ----------------------------------------------------------------------------------------------------

    async def _all(self, resource: str) -> None:
        entries = self._store.reads.entries(resource, "")
        if resource == NODES:
            self._simulated = {entry.key.name for entry in entries if is_simulated(entry.object())}
            await self._add_pods(self._simulated)
        pauses = Pauses()
        for entry in entries:
            self._queue.add(entry.key)
            await pauses.pause()

    async def _changed(self, resource: str, events: Iterable[Event]) -> None:
        for event in events:
            key = event.entry.key
            entry = self._store.reads.peek(*key)
            if entry is None:
                self._addresses.release(event.entry.uid)
            if resource == NODES:
                await self._note_node(key.name, entry)
            self._queue.add(key, cause=event.revision)

    async def _note_node(self, name: str, entry: Entry | None) -> None:
        simulated = entry is not None and is_simulated(entry.object())
        if simulated != (name in self._simulated):
            (self._simulated.add if simulated else self._simulated.discard)(name)
            await self._add_pods({name})

    async def _add_pods(self, nodes: set[str]) -> None:
        pauses = Pauses()
        for entry in self._store.reads.entries(PODS, ""):
            if entry.fields.get("spec.nodeName") in nodes:
                self._queue.add(entry.key)
            await pauses.pause()

    # -- steps --------------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: Key) -> float:
        """Take the object's next step if it is due. Return the seconds until then; 0: it has none."""
        entry = self._store.reads.peek(*key)
        obj = entry.object() if entry is not None else None
        if entry is None or obj is None or not self._is_ours(key[0], entry, obj):
            self._steps.pop(key, None)
            return 0
        if key[0] == PODS:
            self._addresses.note(entry.uid, (obj.get("status") or {}).get("podIP") or "")
        step = self._next_step(key, entry, obj)
        if step is None:
            return 0
        remaining = step.due - trio.current_time()
        if remaining > 0:
            return remaining
        del self._steps[key]
        await self._take(step.stage, entry, obj)
        return SOON if step.stage.immediate else 0

    def _is_ours(self, resource: str, entry: Entry, obj: ReadOnlyObject) -> bool:
        if resource == NODES:
            return is_simulated(obj)
        return resource != PODS or entry.fields.get("spec.nodeName") in self._simulated

    def _next_step(self, key: Key, entry: Entry, obj: ReadOnlyObject) -> _Step | None:
        step = self._steps.get(key)
        if step is None or step.uid != entry.uid or not step.stage.matches(obj):
            self._steps.pop(key, None)
            stage = chosen(self._stages.get(key[0], ()), obj, self._chance())
            if stage is None:
                return None
            delay = stage.delay.seconds(obj, datetime.now(UTC), self._chance())
            step = self._steps[key] = _Step(entry.uid, stage, trio.current_time() + delay)
        return step

    async def _take(self, stage: Stage, entry: Entry, obj: ReadOnlyObject) -> None:
        """Write what a Stage says. An object that is gone by now needs nothing more. StatusError."""
        rt = self._types[entry.key.resource]
        target = Target(rt=rt, namespace=entry.key.namespace, name=entry.key.name, manager=COMPONENT)
        try:
            for patch in stage.patches:
                await self._patch(patch, target, entry, obj)
        except StatusError as error:
            if error.code != 404:
                raise
        except (TemplateError, DecodeError) as error:
            await self._events.warn(entry, "StageFailed", f"the Stage {stage.name} could not be taken: {error}")
            return
        if stage.added_finalizers or stage.removed_finalizers or stage.removes_all_finalizers:
            change = partial(_with_finalizers, stage)
            await edit_if_exists(self._store, COMPONENT, target, change, cause=entry.revision)
        if stage.event is not None:
            named = {name: str(stage.event.get(name, "")) for name in ("type", "reason", "message")}
            await self._events.record(entry, named["reason"], named["message"], event_type=named["type"] or "Normal")
        if stage.delete:
            now = DeleteOptions(grace_period_seconds=0, precondition_uid=entry.uid)
            await delete_if_exists(self._store, COMPONENT, target, now, cause=entry.revision)

    async def _patch(self, patch: Patch, target: Target, entry: Entry, obj: ReadOnlyObject) -> None:
        text = patch.template.render(obj, self._functions(entry, obj))
        value, _ = yaml.decode_value(text.encode())
        if patch.root and value is not None:
            value = {patch.root: value}
        if not value:
            return
        content_type = patch.content_type or _default_type(target.rt)
        if isinstance(value, dict):
            value = {**value, "metadata": {**(value.get("metadata") or {}), "uid": entry.uid}}
        to = Target(
            rt=target.rt,
            namespace=target.namespace,
            name=target.name,
            subresource=patch.subresource,
            manager=COMPONENT,
        )
        caller = system_caller(COMPONENT, "patch", cause=entry.revision)
        await self._store.writes.patch(caller, to, content_type, orjson.dumps(value))

    def _functions(self, entry: Entry, obj: ReadOnlyObject) -> dict[str, Callable[..., Any]]:
        def pod_address(node: str = "", host: bool = False, uid: str = "", *_: Any) -> str:
            return NODE_ADDRESS if host else self._addresses.address(uid or entry.uid)

        def own_address() -> str:
            return pod_address(host=bool((obj.get("spec") or {}).get("hostNetwork")))

        return functions(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), self._version) | {
            "NodeName": lambda: entry.key.name,
            "NodePort": lambda: KUBELET_PORT,
            "NodeIP": lambda: NODE_ADDRESS,
            "NodeIPs": lambda: [NODE_ADDRESS],
            "NodeIPWith": lambda _: NODE_ADDRESS,
            "NodeIPsWith": lambda _: [NODE_ADDRESS],
            "PodIP": own_address,
            "PodIPs": lambda: [own_address()],
            "PodIPWith": pod_address,
            "PodIPsWith": lambda *given: [pod_address(*given)],
        }


def _default_type(rt: ResourceType) -> str:
    return PATCH_TYPES["merge" if rt.custom is not None else "strategic"]


def _with_finalizers(stage: Stage, obj: Object) -> Object:
    held = [] if stage.removes_all_finalizers else obj["metadata"].get("finalizers") or []
    kept = [each for each in held if each not in stage.removed_finalizers]
    added = [each for each in stage.added_finalizers if each not in kept]
    return {**obj, "metadata": {**obj["metadata"], "finalizers": [*kept, *added]}}
