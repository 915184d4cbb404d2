"""The views: for each resource, its objects as of the applied revision, and what happened to them lately.

No I/O and no waiting here but for what cursors and readers sleep on (waking.py). The tail is the only caller of
``load``, ``apply`` and ``forget``; everybody else reads. All of it is plain functions between two checkpoints, so a
reader sees every record of a batch applied, or none.

Invariant: the views are exactly the records 1..``applied`` folded in order, and for each view the events above its
``held_since`` lead from the state there to the state now:

    applied 7   pods: a@3 b@7    held_since 4, events: 5 DELETE c, 6 CREATE b, 7 UPDATE b
    snapshot(4): undo 5..7       a@3 c@2
    snapshot(3): None            ask the log
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kubechronicle.eventlog.entries import NOTHING, Describe, Entry, Event, Plain, entry_of, seal
from kubechronicle.eventlog.errors import LogCorrupt
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.records import Head, Operation, Record
from kubechronicle.eventlog.views.sorted_store import Shelving, SortedStore, merge, page_of
from kubechronicle.eventlog.views.window import Window
from kubechronicle.eventlog.watching.cursors import ReadHistory, WatchCursor
from kubechronicle.eventlog.watching.dispatcher import Pump
from kubechronicle.eventlog.watching.watcher_groups import Progress, Waiting

__all__ = ["NOTHING", "Describe", "Entry", "Event", "View", "ViewStatistics", "Views", "entry_of", "page_of", "seal"]

SNAPSHOTS_KEPT = 4
"""Per view, the latest past states asked for: the pages of one LIST ask for the same revision again and again. They
hold pointers only; the entries are held by the recent events anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewStatistics:
    """Of one view: objects, events in memory and their bytes, cursors asleep."""

    objects: int
    events: int
    event_bytes: int
    held_since: int
    sleeping: int


class View:
    """One resource at the applied revision. See the head of this file."""

    __slots__ = ("_by_field", "_describe", "_progress", "_shelves", "_snapshots", "resource", "waiting", "window")

    def __init__(self, resource: str, *, describe: Describe, progress: Progress, pump: Pump) -> None:
        self.resource = resource
        self.window = Window()
        self.waiting = Waiting(pump)
        self._describe = describe
        self._progress = progress
        self._shelves = SortedStore()
        self._snapshots: dict[int, tuple[Entry, ...]] = {}
        self._by_field: dict[str, Shelving] = {}  # of each field asked for

    # Reading

    @property
    def applied(self) -> int:
        return self._progress.applied

    @property
    def held_since(self) -> int:
        """History in memory reaches back to this revision."""
        return self.window.held_since

    @property
    def events(self) -> Sequence[Event]:
        """Recent events in revision order: all those above ``held_since``. Shared; not to be changed."""
        return self.window.events

    def get(self, namespace: str, name: str) -> Entry | None:
        return self._shelves.get(namespace, name)

    def entries(self, namespace: str = "") -> Sequence[Entry]:
        """Of one namespace, or of all, ordered by (namespace, name) bytewise. Stays as it is when the view moves on."""
        return self._shelves.all(namespace) if self._shelves.count else ()

    def page(self, namespace: str, after: tuple[str, str] | None, limit: int) -> Sequence[Entry]:
        """At most ``limit`` of the entries of a namespace (or of all) that follow the key ``after``."""
        return self._shelves.page(namespace, after, limit)

    def having(self, field: str, value: str) -> Sequence[Entry]:
        """The entries of all namespaces with this value (not empty) of a selectable field, in order. Thousands of nodes
        ask for their own few of very many pods, and all at once after a restart: the first who asks of a field pays for
        an index."""
        index = self._by_field.get(field)
        if index is None:
            index = self._by_field[field] = Shelving(field)
            for entry in self.entries():
                index.put(entry)
        return index.having(value)

    def count(self, namespace: str = "") -> int:
        return self._shelves.size(namespace)

    def snapshot(self, revision: int) -> Sequence[Entry] | None:
        """All entries as they were at the revision, in order; None if memory does not reach back that far (ask the
        log). The revision must not be above ``applied``."""
        if revision < self.held_since:
            return None
        if self.unchanged_since(revision):
            return self.entries()
        found = self._snapshots.get(revision)
        if found is None:
            found = merge(self.entries(), self.window.past(revision))
            while len(self._snapshots) >= SNAPSHOTS_KEPT:
                del self._snapshots[next(iter(self._snapshots))]
            self._snapshots[revision] = found
        return found

    def unchanged_since(self, revision: int) -> bool:
        """Whether what is now was so at the revision, which must not be below ``held_since``."""
        return self.window.after(revision) == len(self.window.events)

    def statistics(self) -> ViewStatistics:
        return ViewStatistics(
            objects=self.count(),
            events=len(self.window.events),
            event_bytes=self.window.bytes,
            held_since=self.held_since,
            sleeping=len(self.waiting),
        )

    # Writing: Views only

    def apply(self, record: Record) -> Event:
        """Fold one record in. LogCorrupt if it does not follow from the state."""
        _, namespace, name = record.key
        previous = self._shelves.get(namespace, name)
        if (previous.revision if previous is not None else 0) != record.previous_revision:
            raise LogCorrupt(
                f"revision {record.revision} says that {record.key} was last changed at {record.previous_revision}, "
                f"but it was at {previous.revision if previous is not None else 0}"
            )
        entry = entry_of(record, self._describe)
        if record.operation is not Operation.DELETE:
            self._shelves.put(entry)
        elif previous is not None:
            self._shelves.remove(namespace, name)
        for index in self._by_field.values():
            if previous is not None:
                index.remove(previous)
            if record.operation is not Operation.DELETE:
                index.put(entry)
        event = Event(record.revision, record.operation, entry, previous, record.committed_at)
        self.window.add(event)
        return event

    def replace(self, entries: list[Entry], revision: int) -> None:
        self._shelves = SortedStore(entries)
        self._snapshots.clear()
        self._by_field.clear()
        self.window.reset(revision)

    def forget(self, revision: int) -> None:
        self.window.forget(min(revision, self.applied))
        for old in [held for held in self._snapshots if held < self.held_since]:
            del self._snapshots[old]


class Views:
    """All views; ``views["pods"]`` is made when first asked for, empty if there are no such objects.

    ``read_history`` is the log's ``read_resource``, for cursors whose history has scrolled out; the tail sets it, and
    runs the ``pump``. ``plain`` spares loading and reading history what it can.
    """

    def __init__(self, describe: Describe, plain: Plain | None = None) -> None:
        self.read_history: ReadHistory | None = None
        self.pump = Pump()
        self.erasures = 0  # how often history was erased: what was read before is not to be told after
        self._copies: list[Callable[[], None]] = []
        self._describe = describe
        self._plain = plain
        self._progress = Progress()
        self._views: dict[str, View] = {}
        self._loaded = 0
        self._head = Head(revision=0, compacted=0)

    def __getitem__(self, resource: str) -> View:
        view = self._views.get(resource)
        if view is None:
            view = View(resource, describe=self._describe, progress=self._progress, pump=self.pump)
            view.window.reset(self._loaded)
            self._views[resource] = view
        return view

    def __iter__(self) -> Iterator[View]:
        return iter(tuple(self._views.values()))

    @property
    def applied(self) -> int:
        """The revision up to which everything is in the views."""
        return self._progress.applied

    def compacted_for(self, resource: str) -> int:
        """Below this revision the resource's history may be gone, as far as is known here ("": of any resource)."""
        return self._head.compacted_for(resource)

    async def wait_applied(self, revision: int) -> None:
        """Until ``applied`` has reached the revision; see ConsistentRead for one with a deadline."""
        await self._progress.wait(revision)

    def watch(
        self,
        resource: str,
        *,
        after: int,
        namespace: str = "",
        name: str = "",
        field: tuple[str, str] | None = None,
    ) -> WatchCursor:
        """A cursor over the changes of a resource with revision > ``after``. Empty namespace or name: any.

        ``field``: (selectable field, value): changes where the value was or is in the object. Whether that is an
        ADDED or a DELETED to the watcher is for the caller to tell from ``event.previous`` and ``event.entry``.
        """
        return WatchCursor(self[resource], self, after=after, namespace=namespace, name=name, field=field)

    def on_erased(self, forget: Callable[[], None]) -> None:
        """Have ``forget`` called whenever history may have been erased: for who keeps copies of what was."""
        self._copies.append(forget)

    def describe_record(self, record: Record) -> Entry:
        """The entry for a record that was read from the log."""
        return entry_of(record, self._describe, self._plain)

    # Writing: the tail only

    def load(self, entries: dict[str, list[Entry]], head: Head) -> None:
        """Begin anew with these objects, by resource, in any order: the state at ``head``. Cursors stay valid: what
        they have not seen yet they read from the log, or learn that it has been compacted."""
        before = self.applied
        for resource in entries.keys() | self._views.keys():
            self[resource].replace(entries.get(resource, []), head.revision)
        self._loaded = head.revision
        self._note_erasure()  # maybe, among what was missed
        self._progress.advance(head.revision)
        for view in self:
            view.waiting.wake_all(before)

    def apply(self, records: Sequence[Record]) -> None:
        """Fold these records in and wake whom they concern, each once. They must follow ``applied`` without a gap:
        LogCorrupt otherwise."""
        if not records:
            return
        happened: defaultdict[View, list[Event]] = defaultdict(list)
        for revision, record in enumerate(records, self.applied + 1):
            if record.revision != revision:
                raise LogCorrupt(f"revision {revision} is missing: the log goes on with {record.revision}")
            view = self[record.key.resource]
            happened[view].append(view.apply(record))
        self._progress.advance(records[-1].revision)
        for view, events in happened.items():
            if view.resource == erasures.RESOURCE:
                self._forget_erased(events)
            view.waiting.wake(events)

    def _forget_erased(self, events: Sequence[Event]) -> None:
        """Contents were erased from the log. What became of it there is to be read there: of these resources nothing is
        left in memory but what is now."""
        for event in events:
            for resource in erasures.parse(event.entry.json).resources:
                self[resource].forget(self.applied)
        self._note_erasure()

    def _note_erasure(self) -> None:
        self.erasures += 1
        for forget in self._copies:
            forget()

    def forget(self, head: Head) -> None:
        """History at or below the head's compacted revisions is gone, from memory as well: else the same question got
        an answer from one replica and 410 from another."""
        marks = (head.compacted, *head.compacted_of.values())
        if max(marks) >= max(self._head.compacted, *self._head.compacted_of.values(), 0):
            self._head = head
        for view in self:
            view.forget(head.compacted_for(view.resource))
