"""PastDefinitions: the resource types that were served at a revision.

So a request below /history/at/MOMENT finds a custom resource whose definition is deleted by now, with the versions and
schema of that moment. Definitions and registries are kept by the revisions of the definitions they come from: between
two changes of definitions, all moments share one registry. The bounds of such spans are kept, too. So the next read of
a moment in a span asks the log for its own objects alone.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kubechronicle.actors.definitions.current import CurrentRegistry
from kubechronicle.actors.definitions.definition import DEFINITIONS, Definition, read_definition
from kubechronicle.actors.reading.reads import Reads, Selection, parse_continue
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.views.views import View

MOST_REGISTRIES: Final = 4
MOST_SPANS: Final = 16
MOST_DELETED: Final = 1000
PAGE: Final = 100
"""Definitions read from the log at once; one may have a megabyte."""

_RegistryKey = tuple[tuple[str, int], ...]
"""Name and revision of each definition."""


class PastResources:
    """The types served at a moment, with the interface of CurrentRegistry. Nothing ends: the past does not change."""

    def __init__(self, registry: Registry) -> None:
        self.registry: Final = registry

    def end_with(self, rt: ResourceType, end: Callable[[], None]) -> None:
        """Do nothing."""

    def forget_end(self, rt: ResourceType, end: Callable[[], None]) -> None:
        """Do nothing."""


class _Span(NamedTuple):
    """Revisions from ``first`` to ``last``, in which no definition changed. ``key``: of their registry."""

    first: int
    last: int
    key: _RegistryKey = ()


class PastDefinitions:
    """``base``: the built-in resources. ``present``: the present ones."""

    def __init__(self, base: Registry, present: CurrentRegistry, reads: Reads) -> None:
        self._base = base
        self._present = present
        self._reads = reads
        self._rt = base.builtin("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        self._definitions: dict[tuple[str, int], Definition | None] = {}
        self._registries: OrderedDict[_RegistryKey, Registry] = OrderedDict()
        self._spans: deque[_Span] = deque(maxlen=MOST_SPANS)
        self._steady: _Span | None = None  # up to the present, as far as it is known
        self._deleted: tuple[int, Sequence[ResourceType]] | None = None  # as of a revision
        reads.views.on_erased(self._forget)

    def _forget(self) -> None:
        """Forget definitions of which contents may have been erased."""
        self._definitions.clear()
        self._registries.clear()
        self._spans.clear()
        self._steady = None  # the log may have gone back
        self._deleted = None

    async def resources_at(self, revision: int) -> PastResources:
        """Return the types that were served at a revision. StatusError 410, 504."""
        view = self._reads.views[DEFINITIONS]
        await self._reads.wait_not_older(revision)
        if revision >= view.held_since and view.unchanged_since(revision):
            return PastResources(self._present.registry)
        span = _Span(revision, revision)
        if revision >= self._reads.views.compacted_for(DEFINITIONS):  # otherwise the list of definitions is rejected
            if (kept := self._kept_at(view, revision)) is not None:
                return PastResources(kept)
            erasures = self._reads.views.erasures
            span = await self._span_of(revision, view.applied)
            if erasures != self._reads.views.erasures:  # what was read may not hold any more
                self._forget()
                span = _Span(revision, revision)
            if self._is_steady(view, revision):
                return PastResources(self._present.registry)
        entries = await self._entries_at(revision)
        key = tuple((entry.key.name, entry.revision) for entry in entries)
        self._spans.append(span._replace(key=key))
        return PastResources(self._registry(key, entries))

    def _is_steady(self, view: View, revision: int) -> bool:
        """Return whether it is known that no definition has changed since a revision."""
        if not self._steady or not self._steady.first <= revision <= view.applied:
            return False
        if self._steady.last < view.held_since or not view.unchanged_since(self._steady.last):
            return False
        self._steady = self._steady._replace(last=view.applied)
        return True

    def _kept_at(self, view: View, revision: int) -> Registry | None:
        """Return the registry of a revision, if it is known without a question to the log."""
        if self._is_steady(view, revision):
            return self._present.registry
        keys = (span.key for span in self._spans if span.first <= revision <= span.last)
        return next((self._registries[key] for key in keys if key in self._registries), None)

    async def _span_of(self, revision: int, until: int) -> _Span:
        """Return the span of a revision, up to ``until``. Remember it if it reaches there, which is the usual case."""
        newest = await self._change(until=until)
        if newest is None or newest <= revision:
            self._steady = _Span(await self._mark() if newest is None else newest, until)
            return self._steady
        after = await self._change(after=revision, until=until, newest_first=False)
        before = await self._change(until=revision)
        return _Span(await self._mark() if before is None else before, revision if after is None else after - 1)

    async def _change(self, **bounds: Any) -> int | None:
        """Return the revision of the first change of a definition within the bounds of a ChangeQuery; None: none."""
        query = ChangeQuery(resources=(DEFINITIONS,), with_replaced=False, **bounds)
        changes = await self._reads.log.changes(query, limit=1)
        return changes[0][0].revision if changes else None

    async def _mark(self) -> int:
        """Return the revision up to which changes may be dropped. It never falls: read it after the changes."""
        return (await self._reads.log.head()).compacted_for(DEFINITIONS)

    async def _entries_at(self, revision: int) -> list[Entry]:
        entries: list[Entry] = []
        after: tuple[str, str] | None = None
        while True:
            page = await self._reads.list_past(
                self._rt, Selection(), revision, limit=PAGE, after=after, paging=after is not None
            )
            entries += page.entries
            if not page.continue_token:
                return entries
            _, after = parse_continue(self._rt, Selection(), page.continue_token)

    async def deleted(self) -> Sequence[ResourceType]:
        """Return the types of deleted definitions whose deletion is in the retained history, the newest first.

        There are at most MOST_DELETED definitions. LogUnavailable.
        """
        view = self._reads.views[DEFINITIONS]
        if self._deleted is not None:
            revision, types = self._deleted
            if revision >= view.held_since and view.unchanged_since(revision):
                return types
        applied, until = view.applied, view.applied
        found: dict[str, tuple[ResourceType, ...]] = {}
        while len(found) < MOST_DELETED:
            query = ChangeQuery(until=until, resources=(DEFINITIONS,), operations=(Operation.DELETE,))
            changes = await self._reads.log.changes(query, limit=PAGE)
            for record, _ in changes:
                entry = self._reads.views.describe_record(record)
                definition = None if record.erased or record.problem else read_definition(entry, self._base)
                if definition is not None and record.key.name not in found:
                    found[record.key.name] = definition.types
            if not changes:
                break
            until = changes[-1][0].revision - 1
        types = [rt for each in found.values() for rt in each]
        self._deleted = applied, types
        return types

    def _registry(self, key: _RegistryKey, entries: Sequence[Entry]) -> Registry:
        registry = self._registries.get(key)
        if registry is None:
            types = [rt for entry in entries for rt in self._types(entry)]
            registry = self._base.with_types(
                (rt for rt in types if rt.custom.served), unserved=(rt for rt in types if not rt.custom.served)
            )
            self._keep(key, registry)
        self._registries.move_to_end(key)
        return registry

    def _types(self, entry: Entry) -> tuple[ResourceType, ...]:
        present = self._reads.peek(*entry.key)
        if present is not None and present.revision == entry.revision:
            definition = self._present.definitions.get(entry.key.name)
        else:
            key = (entry.key.name, entry.revision)
            if key not in self._definitions:
                self._definitions[key] = read_definition(entry, self._base)
            definition = self._definitions[key]
        return definition.types if definition is not None else ()

    def _keep(self, key: _RegistryKey, registry: Registry) -> None:
        """Keep a registry, and of the definitions those that a kept registry has."""
        self._registries[key] = registry
        if len(self._registries) > MOST_REGISTRIES:
            self._registries.popitem(last=False)
            used = {each for kept in self._registries for each in kept}
            self._definitions = {each: held for each, held in self._definitions.items() if each in used}
