"""The base of a branch: all objects as of a revision, from memory as far as that reaches back, else from the log.

Entries of built-in kinds that have not changed since are the same ones as in the views of the present. So a branch of
the present costs memory for its indexes and its own changes only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio
from msgspec import structs

from kubechronicle.actors.allocation.ports import NODE_PORTS
from kubechronicle.actors.definitions.past import PastDefinitions
from kubechronicle.actors.reading.reads import Reads
from kubechronicle.api.errors import status
from kubechronicle.api.registry.registry import Registry
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.errors import Compacted, FutureRevision
from kubechronicle.eventlog.records import Record

MOST_OBJECTS: Final = 100_000
"""Objects of a base. Opening a branch takes 4 µs of CPU and 160 bytes for each; their indexes are made in one step."""
MOST_READ_BYTES: Final = 256 * 1024 * 1024
"""Bytes of objects of a base that are read from the log, because the views of the present do not hold them."""
CHUNK: Final = 1000


class Base:
    """Loads a base. ``builtin``: the registry without custom resources. ``describe``: makes the entry of a record."""

    def __init__(
        self,
        reads: Reads,
        past: PastDefinitions,
        builtin: Registry,
        revision: int,
        describe: Callable[[Record], Entry],
    ) -> None:
        self._reads = reads
        self._past = past
        self._own = {rt.resource for rt in builtin.stored()} | {NODE_PORTS}
        self._revision = revision
        self._describe = describe

    async def load(self) -> dict[str, list[Entry]]:
        """Return the objects by resource. Resources whose history begins later are left out. StatusError 410, 413."""
        reads, revision = self._reads, self._revision
        try:
            registry = (await self._past.resources_at(revision)).registry
            resources = {view.resource for view in reads.views} | {rt.resource for rt in registry.stored()} | self._own
            resources -= reads.elsewhere  # the revision of a base is one of the main log
            found: dict[str, list[Entry]] = {}
            objects = size = 0
            for resource in sorted(resources):
                if revision < reads.views.compacted_for(resource):
                    continue
                entries, read = await self._entries(resource, MOST_READ_BYTES - size)
                objects, size = objects + len(entries), size + read
                if objects > MOST_OBJECTS:
                    raise status.request_entity_too_large(
                        f"a branch may begin with {MOST_OBJECTS} objects, and there are more at revision {revision}"
                    )
                if entries:
                    found[resource] = entries
                await trio.lowlevel.checkpoint()
        except Compacted as error:
            raise status.expired(f"the base of the branch is no longer kept: {error}") from None
        except FutureRevision as error:
            raise status.expired(f"the base of the branch is not in the log any more: {error}") from None
        return found

    async def _entries(self, resource: str, most_bytes: int) -> tuple[list[Entry], int]:
        """Return the objects of a resource, and the bytes that were read for them."""
        view = self._reads.views.find(resource)
        snapshot = view.snapshot(self._revision) if view is not None and view.applied >= self._revision else None
        if snapshot is not None:
            return self._own_copies(resource, snapshot), 0
        entries: list[Entry] = []
        size, after = 0, None
        while True:
            chunk = await self._reads.log.list_at(resource, revision=self._revision, after=after, limit=CHUNK)
            for record in chunk:
                present = view.get(record.key.namespace, record.key.name) if view is not None else None
                if present is not None and present.revision == record.revision:
                    entries += self._own_copies(resource, (present,))
                elif not record.erased:
                    entries.append(self._describe(record))
                    size += len(record.body)
            if size > most_bytes:
                raise status.request_entity_too_large(
                    f"the objects at revision {self._revision} that are no longer in memory have more than "
                    f"{MOST_READ_BYTES // 2**20} MiB, too many for a branch"
                )
            if chunk.is_last(CHUNK):
                return entries, size
            after = (chunk[-1].key.namespace, chunk[-1].key.name)

    def _own_copies(self, resource: str, entries: Sequence[Entry]) -> list[Entry]:
        """Return entries for the views of the branch. The marks of custom objects belong to the present schema."""
        if resource in self._own:
            return list(entries)
        return [structs.replace(entry, mark=None) for entry in entries]
