"""The lifetime of branches: their creation, and the deletion of those that nobody has used for a day."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import trio

from kubechronicle.actors.admission.chain import CREATE, AdmissionState, Attributes
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target, ignore_not_found
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.branches import BRANCHES, MOST, RESOURCE, base_of
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import LogError

# -- creation ----------------------------------------------------------------------------------------------------------
#
# BranchCreation: the storage hook of new branches, which sets and checks the base, and bounds their number.


class BranchCreation:
    """A StorageHook. ``needed``: resources without which no rule can be decided at the base."""

    resources = frozenset({RESOURCE})

    def __init__(self, reads: Reads, needed: Sequence[str]) -> None:
        self._reads = reads
        self._needed = needed

    def release(self, entry: Entry, state: AdmissionState) -> Sequence[CompanionChange]:
        """Return nothing: the changes of a deleted branch are removed by a loop."""
        return ()

    def begin_write(self, attributes: Attributes, state: AdmissionState) -> None:
        """Begin a branch without a base at the present revision. Note a base outside of history: 422. StatusError 403:
        there are as many branches as there may be."""
        obj = attributes.object
        if attributes.operation != CREATE or obj is None:
            return
        count = len(state.entries(RESOURCE, ""))
        if count >= MOST:
            why = f"there are {count} branches, and may be {MOST}; delete one that is not used any more"
            raise status.forbidden(attributes.rt, obj["metadata"].get("name") or "", why)
        spec = obj.get("spec")
        if spec is None or (isinstance(spec, dict) and spec.get("revision") is None):
            obj["spec"] = {**(spec or {}), "revision": self._reads.applied}
        elif isinstance(spec, dict) and isinstance(spec["revision"], int) and (problem := self._problem(base_of(obj))):
            attributes.causes.append(invalid_value("spec.revision", spec["revision"], problem))

    def _problem(self, base: int) -> str:
        """Return why a branch cannot begin at a revision, or ""."""
        applied = self._reads.applied
        if base > applied:
            return f"lies in the future: the newest revision is {applied}"
        begins = max(self._reads.views.compacted_for(resource) for resource in self._needed)
        if base < begins:
            return f"lies before the retained history of objects that rules need, which begins at revision {begins}"
        return ""


# -- expiry ------------------------------------------------------------------------------------------------------------
#
# BranchExpiry: the loop that deletes branches nobody has used for a day, and drops the changes of deleted ones.


log = logging.getLogger(__name__)

COMPONENT: Final = "branch-expiry"
UNUSED: Final = timedelta(hours=24)
INTERVAL: Final = 60.0


class BranchExpiry:
    """One on the leader is enough; several do no harm."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rt = store.registry.builtin(HISTORY, "v1", BRANCHES)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look for unused and deleted branches until cancelled."""
        task_status.started()
        known: bool = True  # changes may be left from before
        while True:
            if known or self._store.reads.entries(RESOURCE, ""):
                try:
                    known = await self.expire(datetime.now(UTC))
                except (LogError, StatusError) as error:
                    log.debug("branches could not be looked at: %s", error)
            await trio.sleep(INTERVAL)

    async def expire(self, now: datetime) -> bool:
        """Look once, and return whether changes of any branch are kept."""
        table, reads = self._store.reads.log.branches, self._store.reads
        used = dict(await table.unused_since())
        await reads.wait_consistent()
        entries = {UUID(entry.uid): entry for entry in reads.entries(RESOURCE, "")}
        if gone := used.keys() - entries.keys():
            await table.remove(gone)
        for id, entry in entries.items():
            created = datetime.fromisoformat(entry.object()["metadata"]["creationTimestamp"])
            if now - used.get(id, created) < UNUSED:
                continue
            log.info("Deleted a branch that nobody has used", extra={"branch": entry.key.name})
            target = Target(rt=self._rt, name=entry.key.name)
            with ignore_not_found():
                caller = system_caller(COMPONENT, "delete", cause=entry.revision)
                await self._store.writes.delete(caller, target, DeleteOptions())
        return bool(used)
