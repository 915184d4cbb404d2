"""The loop that accepts the names of definitions, establishes them, and keeps their other conditions.

One task decides one definition after the other, so that two of them cannot get the same name. The rules are in
api/builtin/apiextensions/conditions.py.

Objects of an earlier definition of the same name are deleted before a new one is established. There are none, unless
another replica, which did not know yet that the earlier one was being deleted, has committed one late.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import trio

from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.definitions.current import CurrentRegistry
from kubechronicle.actors.definitions.definition import DEFINITIONS, Definition
from kubechronicle.actors.loops.edits import edit_if_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.reading.selection import in_turns
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.builtin.apiextensions.conditions import condition, reconciled
from kubechronicle.api.values.objects import Object, ReadOnlyObject
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.records import Operation

COMPONENT: Final = "definition-status"
MANAGER: Final = "kube-apiserver"
# Objects of an earlier definition deleted at once.
BATCH: Final = 100


def timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Establishing:
    """Keeps the status of all definitions."""

    def __init__(self, store: Store, current: CurrentRegistry) -> None:
        self._store = store
        self._current = current
        self._rt = store.registry.builtin("apiextensions.k8s.io", "v1", "customresourcedefinitions")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the definitions until cancelled."""
        task_status.started()
        reflector = Reflector(
            self._store.reads, self._rt, component=COMPONENT, on_list=self._all, on_changes=self._changed
        )
        await reflector.run()

    async def _all(self) -> None:
        for name in tuple(self._current.definitions):
            await self._reconcile(name)

    async def _changed(self, events: Sequence[Event]) -> None:
        """Check the changed definitions, then those of the same groups that wait for a name."""
        groups = set()
        for event in events:
            groups.add(event.entry.key.name.partition(".")[2])
            if event.operation is not Operation.DELETE:
                await self._reconcile(event.entry.key.name)
        for group in groups:
            for definition in tuple(self._current.in_group(group).values()):
                if not definition.has_its_names:
                    await self._reconcile(definition.name)

    async def _reconcile(self, name: str) -> None:
        entry, definition = self._store.reads.peek(DEFINITIONS, "", name), self._current.definitions.get(name)
        if entry is None or definition is None:  # deleted meanwhile, or malformed
            return
        held = entry.object()
        written = await self._written_versions(held, definition)
        status = self._status(held, definition.group, written)
        if status == held.get("status"):
            return
        if not definition.established and condition(status, "Established").get("status") == "True":
            await self._delete_leftovers(definition, entry)

        def change(held: Object) -> Object:
            return {**held, "status": self._status(held, definition.group, written)}

        target = Target(rt=self._rt, name=name, subresource="status", manager=MANAGER)
        await edit_if_exists(self._store, COMPONENT, target, change, cause=entry.revision)

    def _status(self, held: ReadOnlyObject, group: str, written: frozenset[str]) -> Object:
        accepted = [one.accepted for one in self._current.in_group(group).values()]
        return reconciled(held, accepted, now=timestamp(), written=written)

    async def _written_versions(self, held: ReadOnlyObject, definition: Definition) -> frozenset[str]:
        """Return the versions in which objects are stored if the definition does not say it, nothing otherwise."""
        if (held.get("status") or {}).get("storedVersions"):
            return frozenset()
        found = set()
        async for part in in_turns(self._store.reads.entries(f"{definition.names['plural']}.{definition.group}", "")):
            # Each stored object begins with its apiVersion (eventlog.records.Change).
            found |= {entry.json[: entry.json.index(b",")].rpartition(b"/")[2].rstrip(b'"').decode() for entry in part}
        return frozenset(found)

    async def _delete_leftovers(self, definition: Definition, entry: Entry) -> None:
        """Delete the objects that are older than the definition."""
        resource = f"{definition.names['plural']}.{definition.group}"
        if not self._current.may_serve(definition.group, definition.names["plural"]):
            return
        old = [one for one in self._store.reads.entries(resource, "") if one.create_revision < entry.create_revision]
        for start in range(0, len(old), BATCH):
            changes = [CompanionChange(key=one.key, old=one, object=None) for one in old[start : start + BATCH]]
            await self._store.writes.commit_own_changes(
                system_caller(COMPONENT, "delete", cause=entry.revision), changes
            )
