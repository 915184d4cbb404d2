"""The views: for each resource, its objects as of the applied revision, and its recent events.

No I/O here, and no waiting but ``wait_applied``. Only the tail calls ``load``, ``apply`` and ``forget``; all other code
reads. Each of the three runs without a checkpoint, so a reader sees every record of a batch applied, or none.

Invariant: the views are exactly the records 1..``applied`` applied in order. Not here: a single view (view.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from kubechronicle.eventlog.entries import NOTHING, Describe, Entry, Event, Plain, entry_of, seal
from kubechronicle.eventlog.errors import LogCorrupt
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.records import Head, Record
from kubechronicle.eventlog.views.cursors import ReadHistory, ReadObject, WatchCursor
from kubechronicle.eventlog.views.dispatcher import Dispatcher
from kubechronicle.eventlog.views.sorted_store import page_of
from kubechronicle.eventlog.views.view import Follow, View, ViewProgress, ViewStatistics

__all__ = ["NOTHING", "Describe", "Entry", "Event", "View", "ViewStatistics", "Views", "entry_of", "page_of", "seal"]


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
    ``progress``: the applied revision, for readers that are called often.
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
        self.progress = ViewProgress()
        self._views = _ByResource(self._new)
        self.by_resource: Mapping[str, View] = self._views
        self._loaded = 0
        self._head = Head(revision=0, compacted=0)
        self._forgotten = False  # no view holds, or has to apply, history below the marks of ``_head``

    def __getitem__(self, resource: str) -> View:
        return self._views[resource]

    def _new(self, resource: str) -> View:
        view = View(resource, describe=self._describe, progress=self.progress, dispatcher=self.dispatcher)
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
        return self.progress.applied

    @property
    def bytes(self) -> int:
        """The bytes of the JSON of all objects."""
        return sum(view.bytes for view in self._views.values())

    @property
    def restarts(self) -> int:
        """Times that the log went back. A cursor from before may have returned changes that are lost."""
        return self.progress.restarts

    def compacted_for(self, resource: str) -> int:
        """Return the revision below which the resource's history may be gone, as far as is known here.

        ``resource`` "": that of the resources without a retention of their own.
        """
        return self._head.compacted_for(resource)

    async def wait_applied(self, revision: int) -> None:
        """Return when ``applied`` has reached the revision; ConsistentRead has a variant with a deadline."""
        await self.progress.wait(revision)

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
        if before:
            self._note_erasure()  # the missed changes may include one
        else:
            self.erasures += 1  # at the start, no cache has anything of before
        (self.progress.restart if restart else self.progress.advance)(head.revision)
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
        self.progress.advance(records[-1].revision)
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
