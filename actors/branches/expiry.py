"""BranchExpiry: the loop that deletes branches nobody has used for a day, and drops the changes of deleted ones."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import trio

from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target, ignore_not_found
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.history.branches import BRANCHES, RESOURCE
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.eventlog.errors import LogError

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
