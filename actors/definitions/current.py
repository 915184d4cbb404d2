"""CurrentRegistry: the served resource types as of the applied revision, custom resources included.

Every replica has one. It follows the view of CustomResourceDefinitions in the step that applies a change, so that no
reader of the view sees a definition that is not served yet:

    revision 7   widgets.example.com becomes Established       a GET of the definition shows it from 7 on
    registry     /apis/example.com/v1/widgets is served        from the same step on

A definition is served while its condition Established is true. Its ResourceTypes stay the same objects until its spec,
its accepted names or its uid change, so a request or watch finishes on the types it began with. Watches of the old
types are ended then (``ended_with``).

A new definition costs its own parsing, and a changed Registry: 0.2 ms with a thousand others.

Not served: a definition whose resource is built in, one in the groups of this server's own records, and a malformed
one. Only a log from before the validation of definitions can hold a malformed one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from kubechronicle.actors.definitions.definition import DEFINITIONS, Definition, Description, may_serve, read_definition
from kubechronicle.api.custom.rule import RuleMeasures
from kubechronicle.api.custom.served import selectable_fields
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.views.views import Views


class CurrentRegistry:
    """``base``: the built-in resources. ``description``: of the objects in ``views``.

    ``registry``: the registry of this moment. It never changes; a later one is another object.
    ``definitions``: all definitions by name, also those that are not served.
    """

    def __init__(
        self, base: Registry, views: Views, description: Description, measures: RuleMeasures | None = None
    ) -> None:
        self.definitions: Final[dict[str, Definition]] = {}
        self.registry = base
        self._base = base
        self._views = views
        self._description = description
        self._measures = measures
        self._replaced: dict[str, tuple[ResourceType, ...]] = {}  # the types in ``registry`` of changed definitions
        self._by_group: defaultdict[str, dict[str, Definition]] = defaultdict(dict)
        self._ending: list[Callable[[], None]] = []
        self._ends: defaultdict[str, set[Callable[[], None]]] = defaultdict(set)
        views.follow(DEFINITIONS, self._follow)
        self._follow(None)

    def may_serve(self, group: str, plural: str) -> bool:
        """Tell whether the resource may be a custom one: it is neither built in nor this server's own."""
        return may_serve(self._base, group, plural)

    def in_group(self, group: str) -> Mapping[str, Definition]:
        """Return the definitions of a group by name."""
        return self._by_group.get(group, {})

    @contextmanager
    def ended_with(self, rt: ResourceType, end: Callable[[], None]) -> Iterator[None]:
        """Within the block, call ``end`` once the type is no longer served as it is, or at once if that is so now.

        ``end`` is called in the step that applies the change, so it must not wait.
        """
        self.end_with(rt, end)
        try:
            yield
        finally:
            self.forget_end(rt, end)

    def end_with(self, rt: ResourceType, end: Callable[[], None]) -> None:
        """Call ``end`` as ``ended_with`` does, until ``forget_end``."""
        if rt.custom is None:
            return
        self._ends[rt.resource].add(end)
        definition = self.definitions.get(rt.resource)
        if definition is None or not any(one.custom.serves_like(rt.custom) for one in definition.types):
            end()

    def forget_end(self, rt: ResourceType, end: Callable[[], None]) -> None:
        ends = self._ends.get(rt.resource)
        if ends is not None:
            ends.discard(end)
            if not ends:
                del self._ends[rt.resource]

    # -- following the view -------------------------------------------------------------------------------------------

    def _follow(self, events: Sequence[Event] | None) -> None:
        self._take(events)
        if self._replaced:
            self.registry = self._assemble()
            for end in self._ending:
                end()
            self._ending.clear()

    def _take(self, events: Sequence[Event] | None) -> None:
        if events is None:
            entries = {entry.key.name: entry for entry in self._views[DEFINITIONS].entries()}
            for name in self.definitions.keys() - entries.keys():
                self._put(name, None)
            for name, entry in entries.items():
                self._put(name, entry)
            return
        for event in events:
            self._put(event.entry.key.name, None if event.operation is Operation.DELETE else event.entry)

    def _put(self, name: str, entry: Entry | None) -> None:
        """Replace a definition; None: it is deleted."""
        if entry is not None and entry.unreadable:
            return  # it stays as it was last read
        held = self.definitions.get(name)
        new = read_definition(entry, self._base, held, self._measures) if entry is not None else None
        if new is not None:
            self.definitions[name] = self._by_group[new.group][name] = new
        elif held is not None:
            del self.definitions[name], self._by_group[held.group][name]
            if not self._by_group[held.group]:
                del self._by_group[held.group]
        before, after = held.types if held is not None else (), new.types if new is not None else ()
        if before is after:
            return
        self._replaced.setdefault(name, before)
        if self._description.choose(name, selectable_fields(after)):
            self._views[name].describe_again()
        if before and not (after and after[0].custom.serves_like(before[0].custom)):
            self._ending += self._ends.get(before[0].resource, ())

    def _assemble(self) -> Registry:
        """Return the registry with the changes of the definitions."""
        gone = [rt for types in self._replaced.values() for rt in types]
        types = [rt for name in self._replaced if name in self.definitions for rt in self.definitions[name].types]
        self._replaced.clear()
        return self.registry.with_types(
            (rt for rt in types if rt.custom.served),
            unserved=(rt for rt in types if not rt.custom.served),
            without=gone,
        )
