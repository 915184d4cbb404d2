"""The loop that finishes the deletion of definitions: it deletes their objects, then releases the finalizer.

    DELETE of the definition    deletionTimestamp, finalizer, Terminating=True: nothing can be created any more
    this loop                   InstanceDeletionInProgress → delete all objects → wait until none is left
                                → remove the finalizer, and with it the definition, if nothing else holds it

Each step begins from the stored state, so the loop may be stopped after any of them. Objects with finalizers of their
own keep the definition until these are removed. Source: apiextensions-apiserver ``pkg/controller/finalizer``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import trio

from kubechronicle.actors.definitions.current import CurrentRegistry
from kubechronicle.actors.definitions.definition import DEFINITIONS, Definition
from kubechronicle.actors.definitions.establishing import MANAGER, timestamp
from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.loops.edits import edit_if_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.work_queue import WorkQueue
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.reading.selection import in_turns
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.preparation import Proposal
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.builtin.apiextensions import conditions
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline.pipeline import Outcome, Prepared
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object, ReadOnlyObject
from kubechronicle.eventlog.entries import Entry, Event

log = logging.getLogger(__name__)

COMPONENT: Final = "definition-cleanup"
WORKERS: Final = 5  # definitions cleaned up at once, as in kube-apiserver
# Seconds until the objects that remain are looked at again, and after which the definition says that it waits.
POLL: Final = 0.5
PATIENCE: Final = 60.0
TIMEOUT: Final = "context deadline exceeded"
FIRST_RETRY: Final = 0.5
LONGEST_RETRY: Final = 60.0


class Cleanup:
    """Finishes the deletion of definitions."""

    def __init__(self, store: Store, current: CurrentRegistry) -> None:
        self._store = store
        self._current = current
        self._rt = store.registry.builtin("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        self._queue: WorkQueue[str] = WorkQueue(
            first=FIRST_RETRY, longest=LONGEST_RETRY, measures=store.queue(COMPONENT)
        )
        self._waiting_since: dict[str, float] = {}
        self._marked: dict[str, int] = {}  # the revision at which the deletion of a definition was seen first

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the definitions until cancelled."""
        reflector = Reflector(
            self._store.reads, self._rt, component=COMPONENT, on_list=self._all, on_changes=self._changed
        )
        async with trio.open_nursery() as nursery:
            self._queue.start(nursery, self._clean_up, workers=WORKERS, component=COMPONENT)
            task_status.started()
            await reflector.run()

    async def _all(self) -> None:
        for definition in self._current.definitions.values():
            if definition.deleted:
                self._queue.add(definition.name)

    async def _changed(self, events: Sequence[Event]) -> None:
        for event in events:
            definition = self._current.definitions.get(event.entry.key.name)
            if definition is not None and definition.deleted:
                self._queue.add(definition.name)

    async def _clean_up(self, name: str) -> float | None:
        """Do the next steps for a definition. Return the seconds until it is looked at again; 0: after a change."""
        entry, definition = self._store.reads.peek(DEFINITIONS, "", name), self._current.definitions.get(name)
        if entry is None or definition is None or not definition.deleted:
            self._forget(name)
            return 0
        self._marked.setdefault(name, entry.revision)
        held = entry.object()
        if conditions.CLEANUP_FINALIZER not in (held["metadata"].get("finalizers") or ()):
            return 0
        if not self._current.may_serve(definition.group, definition.names["plural"]):
            final = conditions.OVERLAPPING
        elif not definition.types:
            final = conditions.NEVER_ESTABLISHED
        else:
            final = conditions.COMPLETED
            pause = await self._empty(definition, held)
            if pause != 0:
                return pause
        await self._release(name, final)
        self._forget(name)
        return 0

    def _forget(self, name: str) -> None:
        self._waiting_since.pop(name, None)
        self._marked.pop(name, None)

    # -- objects ------------------------------------------------------------------------------------------------------

    async def _empty(self, definition: Definition, held: ReadOnlyObject) -> float | None:
        """Delete the objects. Return 0 if none is left, else the seconds until they are looked at again."""
        name, rt = definition.name, next(rt for rt in definition.types if rt.is_storage_version)
        if conditions.condition(held.get("status") or {}, "Terminating").get("reason") == conditions.PENDING[1]:
            await self._report(name, conditions.IN_PROGRESS)
        try:
            await self._delete_objects(rt, self._marked[name])
        except StatusError as error:
            await self._report(name, conditions.failed(error.message))
            raise
        left = await self._store.reads.list(rt, Selection(), revision=None)
        if not left.entries:
            return 0
        since = self._waiting_since.setdefault(name, trio.current_time())
        if trio.current_time() - since >= PATIENCE:
            await self._report(name, conditions.waiting(TIMEOUT))
        return POLL

    async def _delete_objects(self, rt: ResourceType, cause: int) -> None:
        """Begin the deletion of all objects for which it has not begun."""
        present = await self._store.reads.list(rt, Selection(), revision=None)
        if await _all_marked(present.entries):
            return
        target = Target(rt=rt, manager=MANAGER)
        caller = system_caller(COMPONENT, "deletecollection", cause=cause)
        await self._store.writes.delete_collection(caller, target, Selection(), DeleteOptions())

    # -- the definition -----------------------------------------------------------------------------------------------

    async def _report(self, name: str, state: tuple[str, str, str]) -> None:
        def change(held: Object) -> Object:
            status = conditions.with_condition(held.get("status") or {}, "Terminating", state, now=timestamp())
            return {**held, "status": status}

        target = Target(rt=self._rt, name=name, subresource="status", manager=MANAGER)
        await edit_if_exists(self._store, COMPONENT, target, change, cause=self._marked[name])

    async def _release(self, name: str, final: tuple[str, str, str]) -> None:
        """Remove the finalizer; the definition goes with it if it was the last one.

        This is no update by the rules: a definition that they would reject today can be deleted, too.
        """

        async def change(old: Entry, turn: Turn) -> Proposal:
            return Proposal(_released(old, final))

        try:
            target = Target(rt=self._rt, name=name, manager=MANAGER)
            caller = system_caller(COMPONENT, "update", cause=self._marked[name])
            await self._store.writes.propose(caller, target, change, deletes=True)
        except StatusError as error:
            if error.code != 404:
                raise


async def _all_marked(entries: Sequence[Entry]) -> bool:
    """Tell whether the deletion of all objects has begun."""
    async for part in in_turns(entries):
        if not all(b'"deletionTimestamp"' in entry.json and entry.ending().deleted for entry in part):
            return False
    return True


def _released(old: Entry, final: tuple[str, str, str]) -> Prepared:
    """Return the definition without the finalizer, or its deletion."""
    stored = old.object()
    new = {**stored, "metadata": dict(stored["metadata"])}
    metadata = new["metadata"]
    left = [one for one in metadata.get("finalizers") or () if one != conditions.CLEANUP_FINALIZER]
    if not left:
        return Prepared(Outcome.GONE, stored, old.revision, stored)
    metadata["finalizers"] = left
    del metadata["resourceVersion"]
    new["status"] = conditions.with_condition(new.get("status") or {}, "Terminating", final, now=timestamp())
    return Prepared(Outcome.STORE, new, old.revision)
