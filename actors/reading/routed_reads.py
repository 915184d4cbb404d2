"""RoutedReads: the reads of a server with several logs (eventlog/layout.py). Each resource is read from its own log.

    reads.get(leases…)            the log of leases
    reads.get(pods…)              the main log
    reads.of("events").log        the log of Events
    reads.log, .views, .applied   the main log's, as is everything that names no resource

The objects that rules rest on (namespaces, roles, policies, quotas) are in the main log. So a write of a resource in
another log rests on two logs. It is decided again when either of them shows something newer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kubechronicle.actors.reading.reads import Listing, Reads, Selection, Watching
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.consistency import ConsistentRead
from kubechronicle.eventlog.entries import Describe, Entry
from kubechronicle.eventlog.layout import place_of
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.views.views import View, Views


class RoutedReads(Reads):
    """See the head of this file. ``elsewhere``: the reads of resources that are not in the main log.

    ``places``: the reads of the other logs by place (``place_of``).
    """

    def __init__(
        self,
        *,
        log: RevisionLog,
        views: Views,
        consistency: ConsistentRead,
        describe: Describe,
        elsewhere: Mapping[str, Reads],
        places: Mapping[int, Reads],
    ) -> None:
        super().__init__(log=log, views=views, consistency=consistency, describe=describe)
        self._main = Reads(log=log, views=views, consistency=consistency, describe=describe)
        self._elsewhere = dict(elsewhere)
        self._places = dict(places)

    @property
    def logs(self) -> Sequence[Reads]:
        return (self, *self._places.values())

    @property
    def main(self) -> Reads:
        return self._main

    @property
    def elsewhere(self) -> frozenset[str]:
        return frozenset(self._elsewhere)

    def of(self, resource: str) -> Reads:
        return self._elsewhere.get(resource, self)

    def of_revision(self, revision: int) -> Reads:
        return self._places.get(place_of(revision), self)

    def find_view(self, resource: str) -> View | None:
        return self.of(resource).views.find(resource)

    def seen(self, resource: str) -> int:
        other = self._elsewhere.get(resource)
        # The sum grows whenever one of the two does.
        return self._views.applied + (other.applied if other is not None else 0)

    async def wait_current(self, resource: str) -> int:
        other = self._elsewhere.get(resource)
        if other is not None:
            await other.wait_consistent()
        await self.wait_consistent()
        return self.seen(resource)

    # Reads of a resource. The methods of the class above would read the main log.

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        other = self._elsewhere.get(rt.resource)
        if other is not None:
            return await other.get(rt, namespace, name, revision=revision)
        return await super().get(rt, namespace, name, revision=revision)

    async def list(self, rt: ResourceType, selection: Selection, **options: Any) -> Listing:
        other = self._elsewhere.get(rt.resource)
        if other is not None:
            return await other.list(rt, selection, **options)
        return await super().list(rt, selection, **options)

    async def list_past(self, rt: ResourceType, selection: Selection, revision: int, **options: Any) -> Listing:
        other = self._elsewhere.get(rt.resource)
        if other is not None:
            return await other.list_past(rt, selection, revision, **options)
        return await super().list_past(rt, selection, revision, **options)

    async def watch(self, rt: ResourceType, selection: Selection, **options: Any) -> Watching:
        other = self._elsewhere.get(rt.resource)
        if other is not None:
            return await other.watch(rt, selection, **options)
        return await super().watch(rt, selection, **options)

    async def readable(self, entry: Entry) -> Entry | None:
        other = self._elsewhere.get(entry.key.resource)
        if other is not None:
            return await other.readable(entry)
        return await super().readable(entry)

    async def check_readable(self, rt: ResourceType, selection: Selection) -> None:
        other = self._elsewhere.get(rt.resource)
        if other is not None:
            await other.check_readable(rt, selection)
            return
        await super().check_readable(rt, selection)

    def peek(self, resource: str, namespace: str, name: str) -> Entry | None:
        other = self._elsewhere.get(resource)
        return (other.views if other is not None else self._views)[resource].get(namespace, name)

    def peek_for_rules(self, resource: str, namespace: str, name: str) -> Entry | None:
        other = self._elsewhere.get(resource)
        if other is not None:
            return other.peek_for_rules(resource, namespace, name)
        return super().peek_for_rules(resource, namespace, name)

    def entries_for_rules(self, resource: str, namespace: str) -> Sequence[Entry]:
        other = self._elsewhere.get(resource)
        if other is not None:
            return other.entries_for_rules(resource, namespace)
        return super().entries_for_rules(resource, namespace)

    def follow(self, resource: str, changed: Callable[[], None]) -> None:
        other = self._elsewhere.get(resource)
        (other.views if other is not None else self._views).follow(resource, lambda _: changed())

    def entries(self, resource: str, namespace: str) -> Sequence[Entry]:
        other = self._elsewhere.get(resource)
        return (other.views if other is not None else self._views)[resource].entries(namespace)
