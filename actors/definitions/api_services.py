"""The local APIServices of custom resources, one for each group version that a definition serves.

    v1.example.com    {group: example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 100}

One that a user has made is left alone. Source: pkg/controlplane/controller/crdregistration, and kube-aggregator's
autoregistration.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import trio

from kubechronicle.actors.definitions.current import CurrentRegistry
from kubechronicle.actors.definitions.definition import MALFORMED
from kubechronicle.actors.loops.bootstrap.api_services import API_SERVICES, COMPONENT, GROUP, MANAGED, MANAGER
from kubechronicle.actors.loops.edits import NO_CHANGE, create_unless_exists, delete_if_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, Event

ALWAYS: Final = "true"
"""The value of the label MANAGED: kept up to date as long as the server runs."""
PRIORITIES: Final = {"groupPriorityMinimum": 1000, "versionPriority": 100}
RESYNC_INTERVAL: Final = 300.0  # seconds without a change of a definition after which all APIServices are checked

GroupVersion = tuple[str, str]


class CustomAPIServices:
    """Keeps the APIServices of custom resources."""

    def __init__(self, store: Store, current: CurrentRegistry) -> None:
        self._store = store
        self._current = current
        self._rt = store.registry.builtin(GROUP, "v1", "apiservices")
        self._definitions = store.registry.builtin("apiextensions.k8s.io", "v1", "customresourcedefinitions")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the definitions until cancelled."""
        task_status.started()
        reflector = Reflector(
            self._store.reads,
            self._definitions,
            component=COMPONENT,
            on_list=self._all,
            on_changes=self._changed,
            resync=RESYNC_INTERVAL,
        )
        await reflector.run()

    async def _all(self) -> None:
        known = {(one.group, version) for one in self._current.definitions.values() for version in one.versions}
        for entry in self._store.reads.entries(API_SERVICES, ""):
            if entry.labels.get(MANAGED) == ALWAYS:
                version, _, group = entry.key.name.partition(".")
                known.add((group, version))
        await self._reconcile(known, NO_CHANGE)

    async def _changed(self, events: Sequence[Event]) -> None:
        states = [state for event in events for state in (event.entry, event.previous) if state is not None]
        await self._reconcile({found for state in states for found in _group_versions(state)}, events[-1].revision)

    async def _reconcile(self, group_versions: Collection[GroupVersion], cause: int) -> None:
        for group, version in sorted(group_versions):
            name = f"{version}.{group}"
            entry = self._store.reads.peek(API_SERVICES, "", name)
            if any(version in one.versions for one in self._current.in_group(group).values()):
                await self._ensure(name, entry, cause, {"group": group, "version": version, **PRIORITIES})
            elif entry is not None and entry.labels.get(MANAGED) == ALWAYS:
                target = Target(rt=self._rt, name=name, manager=MANAGER)
                await delete_if_exists(self._store, COMPONENT, target, DeleteOptions(), cause=cause)

    async def _ensure(self, name: str, entry: Entry | None, cause: int, spec: Object) -> None:
        target = Target(rt=self._rt, name=name, manager=MANAGER)
        if entry is None:
            obj = {"metadata": {"name": name, "labels": {MANAGED: ALWAYS}}, "spec": spec}
            await create_unless_exists(self._store, COMPONENT, target, obj, cause=cause or None)
        elif entry.labels.get(MANAGED) == ALWAYS and entry.object()["spec"] != spec:
            caller = system_caller(COMPONENT, "update", cause=cause or entry.revision)
            await self._store.writes.edit(caller, target, lambda held: {**held, "spec": spec})


def _group_versions(state: Entry) -> Collection[GroupVersion]:
    """Return the group versions of a definition, served or not; none if it is malformed."""
    try:
        spec = state.object()["spec"]
        return {(spec["group"], version["name"]) for version in spec["versions"]}
    except MALFORMED:
        return ()
