"""Migration of stored objects to the present storage version, as StorageVersionMigrations request it.

    kind: StorageVersionMigration
    spec: {resource: {group: example.com, resource: widgets}}

Each object that was not changed since the migration began is written as it is: an apply without fields, which has no
effect on an object that is stored in the present version. One migration of a resource runs at a time, the oldest first.
Its steps are recorded in its status, so each continues where an earlier server has stopped:

    Running            status.resourceVersion       all objects written      the definition has its storedVersions
    (the definition:   (later changes need          Succeeded, or Failed     Running=False
    StorageMigrating)  no migration)

Source: kube-controller-manager ``pkg/controller/storageversionmigrator``. That one may run at the same time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import orjson
import trio

from kubechronicle.actors.loops.edits import edit_if_exists, with_condition
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.builtin.common.cell_text import is_true
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline.patching import APPLY_YAML, MERGE_PATCH
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object, ReadOnlyObject
from kubechronicle.eventlog.entries import Entry, Event

log = logging.getLogger(__name__)

COMPONENT: Final = "storage-version-migrator-controller"
RUNNER: Final = "migration-runner-controller"
RESOURCE: Final = "storageversionmigrations.storagemigration.k8s.io"
DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
WORKERS: Final = 5  # resources migrated at once
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 60.0
GRACE: Final = timedelta(minutes=1)
"""The time since the creation of a migration within which its resource may still become known."""
VERBS: Final = ("update", "patch", "list")
RETRIED: Final = frozenset((429, 500, 503, 504))

GroupResource = tuple[str, str]


class StorageMigrationLoop:
    """Carries out StorageVersionMigrations."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rt = store.registry.builtin("storagemigration.k8s.io", "v1beta1", "storageversionmigrations")
        self._definitions = store.registry.builtin("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        self._queue: WorkQueue[GroupResource] = WorkQueue(
            first=FIRST_RETRY, longest=LONGEST_RETRY, measures=store.queue(COMPONENT)
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the migrations until cancelled."""
        reflector = Reflector(
            self._store.reads, self._rt, component=COMPONENT, on_list=self._all, on_changes=self._changed
        )
        async with trio.open_nursery() as nursery:
            self._queue.start(nursery, self._reconcile, workers=WORKERS, component=COMPONENT)
            task_status.started()
            await reflector.run()

    async def _all(self) -> None:
        for entry in self._store.reads.entries(RESOURCE, ""):
            self._queue.add(_resource(entry.object()))

    async def _changed(self, events: Sequence[Event]) -> None:
        for event in events:
            self._queue.add(_resource(event.entry.object()))

    async def _reconcile(self, resource: GroupResource) -> float:
        """Do the next step for a resource. Return the seconds until it is looked at again; 0: after a change."""
        entries = [entry.object() for entry in self._store.reads.entries(RESOURCE, "")]
        migrations = sorted((each for each in entries if _resource(each) == resource), key=_age)
        for migration in migrations:
            if _is(migration, "Running") and _has_ended(migration):
                await self._conclude(migration, resource)
        open_ones = [migration for migration in migrations if not _has_ended(migration)]
        running = next((migration for migration in open_ones if _is(migration, "Running")), None)
        if running is not None:
            return await self._continue(running, resource)
        if open_ones:
            await self._begin(open_ones[0], resource)
        return 0

    # -- the steps ----------------------------------------------------------------------------------------------------

    async def _begin(self, migration: Object, resource: GroupResource) -> None:
        text = f"Migration {migration['metadata']['name']} is running"

        def mark(definition: Object) -> Object:
            return with_condition(
                definition, "StorageMigrating", "True", reason="MigrationRunning", message=text, observed=True
            )

        await self._edit_definition(resource, mark, _revision_of(migration))
        await self._add_condition(migration, "Running", "MigrationRunning", "The migration is running")

    async def _continue(self, migration: Object, resource: GroupResource) -> float:
        status, rt = migration.get("status") or {}, self._type(resource)
        if rt is None:
            created = datetime.fromisoformat(migration["metadata"]["creationTimestamp"])
            if datetime.now(UTC) - created < GRACE:
                return FIRST_RETRY
            where = "resource does not exist in discovery"
            await self._fail(migration, where if not status.get("resourceVersion") else _unhandled(where))
        elif not status.get("resourceVersion"):
            if not set(VERBS) <= set(rt.verbs):
                name = f"{rt.api_version}, Resource={rt.plural}"
                text = f'resource "{name}" does not support discovery operations: [{" ".join(VERBS)}]'
                await self._fail(migration, text)
                return 0
            revision = str(await self._store.reads.of(rt.resource).wait_consistent())
            await self._edit(migration, lambda held: _with_revision(held, revision))
        elif await self._migrate(migration, rt, int(status["resourceVersion"])):
            await self._add_condition(migration, "Succeeded", "StorageVersionMigrationSucceeded", "")
        return 0

    async def _migrate(self, migration: Object, rt: ResourceType, until: int) -> bool:
        """Write all objects that were last changed at this revision or before. Return whether all were written."""
        listed = await self._store.reads.list(rt, Selection(), revision=None)
        for entry in listed.entries:
            if entry.revision > until:
                continue
            try:
                await self._rewrite(rt, entry, _revision_of(migration))
            except StatusError as error:
                if error.code in (404, 409):  # deleted, or changed meanwhile
                    continue
                if error.code in RETRIED:
                    raise
                await self._fail(migration, _unhandled(error.message))
                return False
        return True

    async def _rewrite(self, rt: ResourceType, entry: Entry, cause: int) -> None:
        expected = {"uid": entry.uid, "resourceVersion": str(entry.revision)}
        body = orjson.dumps({"apiVersion": rt.api_version, "kind": rt.kind, "metadata": expected})
        target = Target(rt=rt, namespace=entry.key.namespace, name=entry.key.name, manager=COMPONENT)
        try:
            await self._store.writes.patch(system_caller(COMPONENT, "patch", cause=cause), target, APPLY_YAML, body)
        except StatusError as error:
            if error.code != 500:
                raise
            # The object's managed fields do not fit the schema of their version. An update drops them.
            await self._store.writes.patch(system_caller(COMPONENT, "patch", cause=cause), target, MERGE_PATCH, body)

    async def _conclude(self, migration: Object, resource: GroupResource) -> None:
        succeeded = _is(migration, "Succeeded")
        conclude = partial(_concluded, succeeded=succeeded)
        await self._edit_definition(resource, conclude, _revision_of(migration))

        def change(held: Object) -> Object:
            return with_condition(
                held, "Running", "False", reason="MigrationCompleted", message="Migration completed", observed=True
            )

        await self._edit(migration, change)

    # -- reads and writes ---------------------------------------------------------------------------------------------

    def _type(self, resource: GroupResource) -> ResourceType | None:
        """Return the type of a resource in its preferred version; None if it is not served."""
        registry, (group, plural) = self._store.registry, resource
        if not plural:
            return None
        found = (registry.lookup(group, version, plural) for version in registry.versions(group))
        return next((rt for rt in found if rt is not None), None)

    async def _fail(self, migration: Object, text: str) -> None:
        log.warning("storage version migration %s has failed: %s", migration["metadata"]["name"], text)
        await self._add_condition(migration, "Failed", "StorageVersionMigrationFailed", text)

    async def _add_condition(self, migration: Object, kind: str, reason: str, text: str) -> None:
        await self._edit(migration, lambda held: with_condition(held, kind, "True", reason=reason, message=text))

    async def _edit(self, migration: Object, change: Callable[[Object], Object]) -> None:
        name, uid = migration["metadata"]["name"], migration["metadata"]["uid"]

        def of_same(held: Object) -> Object:
            return change(held) if held["metadata"]["uid"] == uid else held

        target = Target(rt=self._rt, name=name, subresource="status", manager=COMPONENT)
        await edit_if_exists(self._store, COMPONENT, target, of_same, cause=_revision_of(migration))

    async def _edit_definition(self, resource: GroupResource, change: Callable[[Object], Object], cause: int) -> None:
        """Change the status of the resource's definition, if it has one."""
        group, plural = resource
        target = Target(rt=self._definitions, name=f"{plural}.{group}", subresource="status", manager=RUNNER)
        if self._store.reads.peek(DEFINITIONS, "", target.name) is not None:
            await edit_if_exists(self._store, COMPONENT, target, change, cause=cause)


def _revision_of(migration: Object) -> int:
    return int(migration["metadata"]["resourceVersion"])


# -- statuses ---------------------------------------------------------------------------------------------------------


def _concluded(definition: Object, *, succeeded: bool) -> Object:
    """Return a definition after a migration, with the stored versions unless its spec has changed meanwhile.

    kube-controller-manager sets them even if the migration has failed. Then old versions could be removed from the
    definition while objects are still stored in them, so here they stay.
    """
    conditions = (definition.get("status") or {}).get("conditions") or ()
    held: Object = next((one for one in conditions if one.get("type") == "StorageMigrating"), {})
    unchanged = held.get("observedGeneration") == definition["metadata"].get("generation")
    reason, text = "MigrationFailed", "The migration has failed"
    if succeeded:
        reason, text = "MigrationSucceeded", "The migration has succeeded"
        outcome = (
            "and the stored versions have been updated"
            if unchanged
            else "but the stored versions have not been updated due to a generation mismatch"
        )
        text = f"{text} {outcome}"
    changed = with_condition(definition, "StorageMigrating", "False", reason=reason, message=text, observed=True)
    if unchanged and succeeded:
        changed["status"]["storedVersions"] = [one["name"] for one in definition["spec"]["versions"] if one["storage"]]
    return changed


def _with_revision(migration: Object, revision: str) -> Object:
    status = migration.get("status") or {}
    return (
        migration if status.get("resourceVersion") else {**migration, "status": {**status, "resourceVersion": revision}}
    )


def _unhandled(text: str) -> str:
    return f"migration encountered unhandled error: {text}"


def _resource(migration: ReadOnlyObject) -> GroupResource:
    found = (migration.get("spec") or {}).get("resource") or {}
    return found.get("group") or "", found.get("resource") or ""


def _is(migration: ReadOnlyObject, kind: str) -> bool:
    return is_true((migration.get("status") or {}).get("conditions"), kind)


def _has_ended(migration: ReadOnlyObject) -> bool:
    return _is(migration, "Succeeded") or _is(migration, "Failed")


def _age(migration: ReadOnlyObject) -> tuple[str, str]:
    return migration["metadata"]["creationTimestamp"], migration["metadata"]["name"]
