"""The reading half of the store face: get, list and watch out of the views, and out of the log for the past.

What a resourceVersion means (Kubernetes API concepts, "Resource versions"):

    get, list  ""   the newest state, consistent across replicas: one shared head query, then the view catches up
               "0"  whatever this view holds, at once
               "N"  not older than N; lists: exactly N with match=Exact, or with a limit and no match given
    watch      ""   the newest state as synthetic events, then changes
               "0"  the view as it is as synthetic events, then changes
               "N"  changes after N, from any retained revision

Nothing here knows HTTP or encodings; answers are Entries, which carry their encoded bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

import trio

from kubechronicle.actors.reading.past_states import PastStates
from kubechronicle.actors.reading.selection import Listing as Listing
from kubechronicle.actors.reading.selection import Selection as Selection
from kubechronicle.actors.reading.selection import page_of
from kubechronicle.api.errors import status
from kubechronicle.api.meta.paging import INCONSISTENT, Continue, decode_continue, encode_continue
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.consistency import ConsistentRead
from kubechronicle.eventlog.entries import ERASED, Describe, Entry, Event
from kubechronicle.eventlog.errors import Compacted, FutureRevision
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.views.views import Views
from kubechronicle.eventlog.watching.cursors import Cursor

# How long a read waits for a revision this replica has not reached (k8s.io/apiserver cacher: blockTimeout).
FRESHNESS_TIMEOUT = 3.0

EXPIRED_LIST = "The resourceVersion for the provided list is too old."
EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(slots=True)
class Watching:
    """A begun watch: first ``initial`` (as ADDED), then what ``cursor`` yields, each event through ``classify``.

    ``initial_revision``: the revision of the initial state; ``bookmark_initial``: tell its end with a bookmark.
    """

    initial: Sequence[Entry]
    initial_revision: int
    bookmark_initial: bool
    cursor: Cursor
    matches: Callable[[Entry], bool] | None = None

    def classify(self, event: Event) -> tuple[str, Entry] | None:
        """What this watcher is told of an event: its type and the object; None: nothing.

        An object that stops matching the selectors is DELETED for this watcher, with its last matching state at the
        event's revision; one that begins to match is ADDED. What was erased may have matched; so what follows it and
        matches is ADDED, as it is for who has never been told of it, and what does not match is DELETED.
        """
        matches, previous = self.matches, event.previous
        deleted = event.operation is Operation.DELETE
        if matches is None:
            new = previous is None or previous.labels is ERASED
            return ("DELETED" if deleted else "ADDED" if new else "MODIFIED"), event.entry
        is_now = not deleted and matches(event.entry)
        was = previous is not None and matches(previous)
        if is_now:
            told_of = was and previous is not None and previous.labels is not ERASED
            return ("MODIFIED" if told_of else "ADDED"), event.entry
        if previous is None or not (was or previous.labels is ERASED or event.entry.labels is ERASED):
            return None
        return "DELETED", event.entry if deleted else last_seen(event, previous)


def last_seen(event: Event, previous: Entry) -> Entry:
    """The object before an event, sealed with the event's revision; made once per event."""
    found = event.cache.get("last_seen")
    if isinstance(found, Entry):
        return found
    member = b'"resourceVersion":"%d"'
    json = previous.json.replace(member % previous.revision, member % event.revision, 1)
    entry = Entry(
        previous.key,
        previous.uid,
        event.revision,
        previous.create_revision,
        previous.version,
        json,
        previous.labels,
        previous.fields,
    )
    event.cache["last_seen"] = entry
    return entry


class ObjectReads(Protocol):
    """What handlers of get, list and watch read from: the present, or a moment of the past (past_reads.py)."""

    async def get(
        self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None
    ) -> Entry | None: ...

    async def list(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        limit: int = 0,
        continue_token: str = "",
        revision: int | None = None,
        exact: bool = False,
    ) -> Listing: ...

    async def watch(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        revision: int | None,
        initial: bool | None = None,
        bookmarks: bool = False,
    ) -> Watching: ...


class WatchScope(TypedDict):
    """What a cursor need not look at beyond; see ``Views.watch``."""

    namespace: str
    name: str
    field: tuple[str, str] | None


class Reads:
    """Get, list and watch over the views. ``describe`` is needed for entries read from the log."""

    def __init__(self, *, log: RevisionLog, views: Views, consistency: ConsistentRead, describe: Describe) -> None:
        self.views = views
        self.log = log
        self.past = PastStates(log=log, views=views, describe=describe)
        self._views = views
        self._consistency = consistency

    @property
    def applied(self) -> int:
        """The revision the views hold now."""
        return self._views.applied

    async def wait_consistent(self) -> int:
        """Wait until the views hold everything committed before this call; the revision they hold then."""
        return await self._consistency.wait()

    async def wait_not_older(self, revision: int) -> None:
        """Wait (bounded) until the views hold the revision. StatusError 504: it lies in the future."""
        if self._views.applied >= revision:
            return
        try:
            await self._consistency.wait_applied(revision, trio.current_time() + FRESHNESS_TIMEOUT)
        except FutureRevision as error:
            raise status.too_large_resource_version(revision, error.current) from None

    async def wait_newer(self, revision: int) -> None:
        """Wait until the views hold more than the revision."""
        await self._views.wait_applied(revision + 1)

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        """The object, or None. ``revision`` None: consistent; otherwise not older than it (0: at once)."""
        if revision is None:
            await self._consistency.wait()
        elif revision:
            await self.wait_not_older(revision)
        return self._views[rt.resource].get(namespace, name)

    def peek(self, resource: str, namespace: str, name: str) -> Entry | None:
        """What this view holds now, perhaps behind other replicas."""
        return self._views[resource].get(namespace, name)

    def entries(self, resource: str, namespace: str) -> Sequence[Entry]:
        """All that this view holds now of a namespace ("": of all), perhaps behind other replicas."""
        return self._views[resource].entries(namespace)

    async def list(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        limit: int = 0,
        continue_token: str = "",
        revision: int | None = None,
        exact: bool = False,
    ) -> Listing:
        """``revision`` None: consistent; 0: at once; else not older than it, or exactly it if ``exact``."""
        after: tuple[str, str] | None = None
        if continue_token:
            read_at, after = continued(rt, selection, continue_token)
            revision, exact = (None, False) if read_at == INCONSISTENT else (read_at, True)
        if exact and revision:
            paging = bool(continue_token)
            return await self.list_past(rt, selection, revision, limit=limit, after=after, paging=paging)
        if revision is None:
            await self._consistency.wait()
        elif revision:
            await self.wait_not_older(revision)
        if not limit and after is None:
            return Listing(entries=self._chosen(rt, selection), revision=self._views.applied)
        view = self._views[rt.resource]
        entries = view.entries(selection.namespace)
        if after is not None:
            entries = view.page(selection.namespace, after, len(entries))
        return page_of(selection, entries, self._views.applied, limit)

    def _chosen(self, rt: ResourceType, selection: Selection) -> Sequence[Entry]:
        """All that the selection is about. What kubelets ask for is not searched: one object by name (they watch their
        ConfigMaps so), and the pods of a node."""
        view = self._views[rt.resource]
        if selection.fields is None:
            return selection.chosen(view.entries(selection.namespace))
        name = selection.fields.required("metadata.name")
        if name is None or (rt.namespaced and not selection.namespace):
            node = selection.fields.required("spec.nodeName")
            if node and not selection.namespace:
                return selection.chosen(view.with_field("spec.nodeName", node))
            return selection.chosen(view.entries(selection.namespace))
        one = view.get(selection.namespace, name)
        return selection.chosen((one,)) if one is not None else ()

    async def list_past(
        self,
        rt: ResourceType,
        selection: Selection,
        revision: int,
        *,
        limit: int,
        after: tuple[str, str] | None,
        paging: bool,
    ) -> Listing:
        """The list as it was at the revision, going on after a key. StatusError 410, 504."""
        await self.wait_not_older(revision)
        try:
            return await self.past.listing(rt, selection, revision, limit=limit, after=after)
        except Compacted:
            raise _expired(selection, after, paging) from None
        except FutureRevision as error:
            raise status.too_large_resource_version(revision, error.current) from None

    async def watch(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        revision: int | None,
        initial: bool | None = None,
        bookmarks: bool = False,
    ) -> Watching:
        """``revision`` and the initial state as the head of this file says; ``initial`` is sendInitialEvents if given.
        That the revision is compacted shows when the cursor is asked."""
        send_initial = initial if initial is not None else not revision
        if revision is None:
            await self._consistency.wait()
        elif revision and initial:
            await self.wait_not_older(revision)
        entries: Sequence[Entry] = ()
        start = self._views.applied if send_initial or not revision else revision
        if send_initial:
            entries = self._chosen(rt, selection)
        cursor = self._views.watch(rt.resource, after=start, **watch_scope(rt, selection))
        # A watch from 0 with bookmarks ends its initial events with one as well (KEP-3157's legacy form).
        ends_with_bookmark = send_initial and bookmarks and (initial is True or revision == 0)
        return Watching(entries, self._views.applied, ends_with_bookmark, cursor, selection.matcher())


def too_old(error: Compacted) -> status.StatusError:
    """410 as a watch tells it (client-go relists on it)."""
    return status.expired(f"too old resource version: {error.requested} ({error.compacted + 1})")


def continued(rt: ResourceType, selection: Selection, text: str) -> tuple[int, tuple[str, str]]:
    """Of a continue token: the revision its pages are read at (or INCONSISTENT), and the key the last one ended with.
    StatusError 400."""
    token = decode_continue(text, namespaced=rt.namespaced and not selection.namespace)
    return token.revision, (selection.namespace or token.after[0], token.after[1])


def watch_scope(rt: ResourceType, selection: Selection) -> WatchScope:
    fields = selection.fields
    name = fields.required("metadata.name") if fields is not None else None
    node = fields.required("spec.nodeName") if fields is not None else None
    return WatchScope(
        namespace=selection.namespace,
        name=name if name is not None and (selection.namespace or not rt.namespaced) else "",
        field=("spec.nodeName", node) if node else None,
    )


def _expired(selection: Selection, after: tuple[str, str] | None, paging: bool) -> status.StatusError:
    if not paging or after is None:
        return status.expired(EXPIRED_LIST)
    where = ("" if selection.namespace else after[0], after[1])
    error = status.expired(EXPIRED_CONTINUE)
    error.list_metadata = {"continue": encode_continue(Continue(INCONSISTENT, where))}
    return error
