"""The views: for each resource, its objects as of the applied revision, and its recent events.

No I/O here, and no waiting but ``wait_applied``. Only the tail calls ``load``, ``apply`` and ``forget``; all other code
reads. Each of the three runs without a checkpoint, so a reader sees every record of a batch applied, or none.

Invariant: the views are exactly the records 1..``applied`` applied in order. In each view the events above its
``held_since`` lead from the state at that revision to the present state:

    applied 7   pods: a@3 b@7    held_since 4, events: 5 DELETE c, 6 CREATE b, 7 UPDATE b
    snapshot(4): undo 5..7       a@3 c@2
    snapshot(3): None            ask the log
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from kubechronicle.eventlog.entries import NOTHING, UNREADABLE, Describe, Entry, Event, Plain, entry_of, seal
from kubechronicle.eventlog.errors import LogCorrupt
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.records import Head, Operation, Record
from kubechronicle.eventlog.views.progress import Progress
from kubechronicle.eventlog.views.sorted_store import FieldIndex, SortedStore, merge, page_of
from kubechronicle.eventlog.views.window import Window
from kubechronicle.eventlog.watching.cursors import WatchCursor
from kubechronicle.eventlog.watching.dispatcher import Dispatcher
from kubechronicle.eventlog.watching.sources import ReadHistory, ReadObject
from kubechronicle.eventlog.watching.watcher_groups import WatcherGroups

__all__ = ["NOTHING", "Describe", "Entry", "Event", "View", "ViewStatistics", "Views", "entry_of", "page_of", "seal"]

SNAPSHOTS_KEPT = 4
"""Past states cached per view: the pages of one LIST read the same revision again and again. A snapshot holds pointers
only; its entries are held by the recent events anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewStatistics:
    """Numbers about one view. ``events`` and ``event_bytes``: of the recent events in memory."""

    objects: int
    events: int
    event_bytes: int
    held_since: int
    waiting_watchers: int


Follow = Callable[[Sequence[Event] | None], None]
"""Called in the step that changes a view, with the events of the change; None: the whole state was replaced."""


class View:
    """One resource at the applied revision. See the head of this file.

    ``unreadable``: the (namespace, name) of objects whose contents cannot be decrypted. Their entries lack labels and
    fields, so no selection may be answered from the view without them (rereading.py).
    """

    __slots__ = (
        "_by_field",
        "_describe",
        "_progress",
        "_snapshots",
        "_store",
        "followers",
        "resource",
        "unreadable",
        "watchers",
        "window",
    )

    def __init__(self, resource: str, *, describe: Describe, progress: Progress, dispatcher: Dispatcher) -> None:
        self.resource = resource
        self.window = Window()
        self.watchers = WatcherGroups(dispatcher)
        self.followers: list[Follow] = []
        self.unreadable: set[tuple[str, str]] = set()
        self._describe = describe
        self._progress = progress
        self._store = SortedStore()
        self._snapshots: dict[int, tuple[Entry, ...]] = {}
        self._by_field: dict[str, FieldIndex] = {}  # built when first queried

    # Reading

    @property
    def applied(self) -> int:
        return self._progress.applied

    @property
    def held_since(self) -> int:
        """The revision to which history in memory reaches back."""
        return self.window.held_since

    @property
    def events(self) -> Sequence[Event]:
        """Recent events in revision order: all those above ``held_since``. Shared; do not change the list."""
        return self.window.events

    def get(self, namespace: str, name: str) -> Entry | None:
        return self._store.get(namespace, name)

    def entries(self, namespace: str = "") -> Sequence[Entry]:
        """Return the entries of a namespace, or of all, ordered by (namespace, name) bytewise. Later changes of the
        view do not change the result."""
        return self._store.all(namespace) if self._store.count else ()

    def page(self, namespace: str, after: tuple[str, str] | None, limit: int) -> Sequence[Entry]:
        """Return at most ``limit`` entries of a namespace (or of all) that follow the key ``after``."""
        return self._store.page(namespace, after, limit)

    def with_field(self, field: str, value: str) -> Sequence[Entry]:
        """Return the entries of all namespaces with this value (not empty) of a selectable field, in order.

        The first query of a field builds an index: after a restart, thousands of nodes at once query their own few of
        very many pods.
        """
        index = self._by_field.get(field)
        if index is None:
            index = self._by_field[field] = FieldIndex(field)
            for entry in self.entries():
                index.put(entry)
        return index.entries(value)

    def count(self, namespace: str = "") -> int:
        return self._store.size(namespace)

    def snapshot(self, revision: int) -> Sequence[Entry] | None:
        """Return all entries as of the revision, in order; None if memory does not reach back that far (query the log).
        The revision must not be above ``applied``."""
        if revision < self.held_since or self.unreadable:
            return None
        if self.unchanged_since(revision):
            return self.entries()
        snapshot = self._snapshots.get(revision)
        if snapshot is None:
            snapshot = merge(self.entries(), self.window.undo_to(revision))
            while len(self._snapshots) >= SNAPSHOTS_KEPT:
                del self._snapshots[next(iter(self._snapshots))]
            self._snapshots[revision] = snapshot
        return snapshot

    def unchanged_since(self, revision: int) -> bool:
        """Return whether the view has not changed since the revision, which must not be below ``held_since``."""
        return self.window.after(revision) == len(self.window.events)

    def statistics(self) -> ViewStatistics:
        return ViewStatistics(
            objects=self.count(),
            events=len(self.window.events),
            event_bytes=self.window.bytes,
            held_since=self.held_since,
            waiting_watchers=len(self.watchers),
        )

    def describe_again(self) -> None:
        """Compute the labels and fields of all entries and recent events anew, when their rules have changed."""
        again: dict[int, Entry] = {}

        def described(entry: Entry) -> Entry:
            new = entry if entry.withheld else again.get(id(entry))
            if new is None:
                labels, fields = self._describe(self.resource, entry.object())
                new = again[id(entry)] = structs.replace(entry, labels=labels or NOTHING, fields=fields or NOTHING)
            return new

        self._store = SortedStore([described(entry) for entry in self._store.all()] if self._store.count else ())
        self._snapshots.clear()
        self._by_field.clear()
        for position, event in enumerate(self.window.events):
            if not event.entry.withheld:
                previous = event.previous
                if previous is not None:
                    previous = described(previous)
                self.window.events[position] = structs.replace(event, entry=described(event.entry), previous=previous)

    # Writing: Views only

    def apply(self, record: Record) -> Event:
        """Apply one record. LogCorrupt if it does not follow from the state."""
        _, namespace, name = record.key
        previous = self._store.get(namespace, name)
        if (previous.revision if previous is not None else 0) != record.previous_revision:
            raise LogCorrupt(
                f"revision {record.revision} says that {record.key} was last changed at {record.previous_revision}, "
                f"but it was at {previous.revision if previous is not None else 0}"
            )
        entry = entry_of(record, self._describe)
        if record.operation is not Operation.DELETE:
            self._store.put(entry)
        elif previous is not None:
            self._store.remove(namespace, name)
        for index in self._by_field.values():
            if previous is not None:
                index.remove(previous)
            if record.operation is not Operation.DELETE:
                index.put(entry)
        event = Event(record.revision, record.operation, entry, previous, record.committed_at)
        self.window.add(event)
        if self.unreadable or entry.labels is UNREADABLE:
            self._note_readability(entry, record.operation)
        return event

    def _note_readability(self, entry: Entry, operation: Operation) -> None:
        _, namespace, name = entry.key
        if entry.labels is UNREADABLE and operation is not Operation.DELETE:
            self.unreadable.add((namespace, name))
        elif (namespace, name) in self.unreadable:
            self.unreadable.discard((namespace, name))
            self.window.forget(entry.revision - 1)  # snapshots are made of readable states alone

    def put_readable(self, old: Entry, new: Entry) -> bool:
        """Replace an unreadable entry by the same one with contents. False: the object has changed meanwhile."""
        _, namespace, name = old.key
        if self._store.get(namespace, name) is not old:
            return False
        self._store.put(new)
        self.unreadable.discard((namespace, name))
        self._by_field.clear()
        self._snapshots.clear()
        self.window.forget(self.applied)  # the event with the unreadable entry, too, is read from the log from now on
        return True

    def replace(self, entries: list[Entry], revision: int) -> None:
        self._store = SortedStore(entries)
        self.unreadable = {(entry.key.namespace, entry.key.name) for entry in entries if entry.labels is UNREADABLE}
        self._snapshots.clear()
        self._by_field.clear()
        self.window.reset(revision)

    def forget(self, revision: int) -> None:
        self.window.forget(min(revision, self.applied))
        for old in [held for held in self._snapshots if held < self.held_since]:
            del self._snapshots[old]


class _ByResource(dict[str, View]):
    """Views by resource. ``make``: makes those that are missing."""

    def __init__(self, make: Callable[[str], View]) -> None:
        self._make = make

    def __missing__(self, resource: str) -> View:
        view = self[resource] = self._make(resource)
        return view


class Views:
    """All views; ``views["pods"]`` is made at its first use, empty if there are no such objects.

    ``by_resource``: the same as a mapping, for readers that are called often.
    ``read_history``: the log's ``read_resource``, for cursors whose history has scrolled out; the tail sets it.
    ``read_object``: the log's ``get_at``, for objects that could not be decrypted before; the tail sets it.
    ``dispatcher``: delivers events to waiting watchers; the tail runs it.
    ``plain``: see ``entry_of``; it saves parsing where records are loaded or read from history.
    ``erasures``: erasures of history so far. Events read before an erasure must not be sent after it.
    """

    def __init__(self, describe: Describe, plain: Plain | None = None) -> None:
        self.read_history: ReadHistory | None = None
        self.read_object: ReadObject | None = None
        self.dispatcher = Dispatcher()
        self.erasures = 0
        self._erasure_callbacks: list[Callable[[], None]] = []
        self._describe = describe
        self._plain = plain
        self._progress = Progress()
        self._views = _ByResource(self._new)
        self.by_resource: Mapping[str, View] = self._views
        self._loaded = 0
        self._head = Head(revision=0, compacted=0)
        self._forgotten = False  # no view holds, or has to apply, history below the marks of ``_head``

    def __getitem__(self, resource: str) -> View:
        return self._views[resource]

    def _new(self, resource: str) -> View:
        view = View(resource, describe=self._describe, progress=self._progress, dispatcher=self.dispatcher)
        view.window.reset(self._loaded)
        return view

    def __iter__(self) -> Iterator[View]:
        return iter(tuple(self._views.values()))

    def find(self, resource: str) -> View | None:
        """Return the view if it has been used; a name from outside makes none."""
        return self._views.get(resource)

    @property
    def applied(self) -> int:
        """Everything up to this revision is in the views."""
        return self._progress.applied

    @property
    def restarts(self) -> int:
        """Times that the log went back. A cursor from before may have returned changes that are lost."""
        return self._progress.restarts

    def compacted_for(self, resource: str) -> int:
        """Return the revision below which the resource's history may be gone, as far as is known here.

        ``resource`` "": that of the resources without a retention of their own.
        """
        return self._head.compacted_for(resource)

    async def wait_applied(self, revision: int) -> None:
        """Return when ``applied`` has reached the revision; ConsistentRead has a variant with a deadline."""
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
        """Return a cursor over the changes of a resource with revision > ``after``. Empty namespace or name: any.

        ``field``: (selectable field, value); selects changes of objects that had or have the value. The caller compares
        ``event.previous`` and ``event.entry`` to choose between ADDED, MODIFIED and DELETED.
        """
        return WatchCursor(self[resource], self, after=after, namespace=namespace, name=name, field=field)

    def follow(self, resource: str, follow: Follow) -> None:
        """Call ``follow`` with each change of the resource, before any reader can see the change. It must not raise."""
        self[resource].followers.append(follow)

    def on_erased(self, forget: Callable[[], None]) -> None:
        """Call ``forget`` whenever history may have been erased: for caches of past states."""
        self._erasure_callbacks.append(forget)

    def describe_record(self, record: Record) -> Entry:
        """Return the entry for a record that was read from the log."""
        return entry_of(record, self._describe, self._plain)

    # Writing: the tail only

    def load(self, entries: dict[str, list[Entry]], head: Head, *, restart: bool = False) -> None:
        """Replace all objects by these, by resource, in any order: the state at ``head``.

        Cursors stay valid. They read the events they have not seen from the log, or raise Compacted. ``restart``: the
        log went back; then all cursors raise Compacted, and tasks that wait for a revision get Diverged.
        """
        before = self.applied
        for resource in entries.keys() | self._views.keys():
            self[resource].replace(entries.get(resource, []), head.revision)
        self._loaded = head.revision
        self._note_erasure()  # the missed changes may include one
        (self._progress.restart if restart else self._progress.advance)(head.revision)
        for view in self:
            for follow in view.followers:
                follow(None)
            view.watchers.wake_all(before)

    def apply(self, records: Sequence[Record]) -> None:
        """Apply these records, then wake or serve the watchers they concern, each once. LogCorrupt if they do not
        follow ``applied`` without a gap."""
        if not records:
            return
        events_by_view: defaultdict[View, list[Event]] = defaultdict(list)
        for revision, record in enumerate(records, self.applied + 1):
            if record.revision != revision:
                raise LogCorrupt(f"revision {revision} is missing: the log continues with {record.revision}")
            view = self._views[record.key.resource]
            events_by_view[view].append(view.apply(record))
        self._progress.advance(records[-1].revision)
        for view, events in events_by_view.items():
            if view.resource == erasures.RESOURCE:
                self._forget_erased(events)
            for follow in view.followers:
                follow(events)
            if view.unreadable:  # whom an unreadable object concerns is not known
                view.watchers.wake_all(events[0].revision - 1)
            else:
                view.watchers.notify(events)

    def put_readable(self, old: Entry, record: Record) -> None:
        """Replace an unreadable entry by its record with contents, unless the object has changed meanwhile."""
        view = self[old.key.resource]
        if view.put_readable(old, self.describe_record(record)):
            self._note_erasure()  # lists of the past with this object are read again
            for follow in view.followers:
                follow(None)

    def _forget_erased(self, events: Sequence[Event]) -> None:
        """Drop the history of the erased resources from memory: only the log can tell what is left of it."""
        for event in events:
            for resource in erasures.parse(event.entry.json).resources:
                self[resource].forget(self.applied)
        self._note_erasure()

    def _note_erasure(self) -> None:
        self.erasures += 1
        for forget in self._erasure_callbacks:
            forget()

    def forget(self, head: Head) -> None:
        """Drop history at or below the head's compacted revisions from memory as well. Otherwise the same request got
        an answer from one replica and 410 from another."""
        if self._forgotten and (head.compacted, head.compacted_of) == (self._head.compacted, self._head.compacted_of):
            return  # every query of the head comes here
        marks = (head.compacted, *head.compacted_of.values())
        if max(marks) >= max(self._head.compacted, *self._head.compacted_of.values(), 0):
            self._head = head
        for view in self:
            view.forget(head.compacted_for(view.resource))
        self._forgotten = head is self._head and all(view.applied >= max(marks) for view in self)
