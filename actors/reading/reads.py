"""Reads: get, list and watch from the views, and from the log for the past.

The resourceVersion of a request (Kubernetes API concepts, "Resource versions"):

    get, list  ""   the newest state, consistent across replicas: one shared head query, then the view catches up
               "0"  this view's state, at once
               "N"  not older than N; lists: exactly N with match=Exact, or with a limit and without match
    watch      ""   the newest state as synthetic events, then changes
               "0"  this view's state as synthetic events, then changes
               "N"  changes after N, from any retained revision; 504 if there is no N yet after some seconds

This module is independent of HTTP and encodings: answers are Entries, which carry their encoded bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypedDict

import trio

from kubechronicle.actors.reading.past_states import PastStates
from kubechronicle.actors.reading.selection import Listing as Listing
from kubechronicle.actors.reading.selection import Selection as Selection
from kubechronicle.actors.reading.selection import Watching as Watching
from kubechronicle.actors.reading.selection import last_seen as last_seen
from kubechronicle.actors.reading.selection import listed_unreadable, page_of, unreadable_error
from kubechronicle.api.errors import status
from kubechronicle.api.meta.list_options import INCONSISTENT, Continue, decode_continue, encode_continue
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.consistency import ConsistentRead
from kubechronicle.eventlog.entries import UNREADABLE, Describe, Entry
from kubechronicle.eventlog.errors import Compacted, FutureRevision
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Key
from kubechronicle.eventlog.views.rereading import reread
from kubechronicle.eventlog.views.views import View, Views

FRESHNESS_TIMEOUT = 3.0
"""Seconds a read waits for a revision this replica has not reached (k8s.io/apiserver cacher: blockTimeout)."""

EXPIRED_LIST = "The resourceVersion for the provided list is too old."
EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class ObjectReads(Protocol):
    """The interface of get, list and watch: Reads for the present, PastReads for a moment of the past."""

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


class Listed:
    """The lists of one resource that were answered from its view: their number, and their objects."""

    __slots__ = ("lists", "returned")

    def __init__(self) -> None:
        self.lists = self.returned = 0

    def add(self, returned: int) -> None:
        self.lists += 1
        self.returned += returned


class WatchScope(TypedDict):
    """The part of a resource that a cursor reads; see ``Views.watch``."""

    namespace: str
    name: str
    field: tuple[str, str] | None


class Reads:
    """Get, list and watch over the views. ``describe``: for entries read from the log. ``listed``: counts lists.

    ``name``: of the database if it is not the main one. ``place``: of its log (eventlog/layout.py).
    """

    def __init__(
        self,
        *,
        log: RevisionLog,
        views: Views,
        consistency: ConsistentRead,
        describe: Describe,
        name: str = "",
        place: int = 0,
    ) -> None:
        self.name = name
        self.place = place
        self.views = views
        self.log = log
        self.past = PastStates(log=log, views=views, describe=describe)
        self._views = views
        self._by_resource = views.by_resource
        self._consistency = consistency
        self.listed: dict[str, Listed] = {}

    @property
    def applied(self) -> int:
        """The revision applied to the views."""
        return self._views.applied

    async def wait_consistent(self) -> int:
        """Wait until the views hold everything committed before this call, and return their revision."""
        return await self._consistency.wait()

    # A server with several logs has RoutedReads, whose main log is meant wherever no resource is named.

    @property
    def logs(self) -> Sequence[Reads]:
        """The reads of each log, the main one first."""
        return (self,)

    @property
    def main(self) -> Reads:
        """The reads of the main log alone, for every resource."""
        return self

    @property
    def elsewhere(self) -> frozenset[str]:
        """The resources that are not in the main log."""
        return frozenset()

    def of(self, resource: str) -> Reads:
        """Return the reads of the log that holds the resource."""
        return self

    def of_revision(self, revision: int) -> Reads:
        """Return the reads of the log to which the revision belongs."""
        return self

    def find_view(self, resource: str) -> View | None:
        """Return the resource's view if it has been used."""
        return self._views.find(resource)

    def seen(self, resource: str) -> int:
        """Return a number that grows with each applied change on which a write of the resource may rest."""
        return self._views.applied

    async def wait_current(self, resource: str) -> int:
        """Wait as ``wait_consistent`` for all changes on which a write of the resource may rest. Return ``seen``."""
        return await self._consistency.wait()

    async def wait_not_older(self, revision: int, *, cached: bool = True) -> None:
        """Wait until the views hold the revision, at most FRESHNESS_TIMEOUT. StatusError 504: it is in the future.

        ``cached``: kube-apiserver has a cache for this read.
        """
        if self._views.applied >= revision:
            return
        try:
            await self._consistency.wait_applied(revision, trio.current_time() + FRESHNESS_TIMEOUT)
        except FutureRevision as error:
            raise status.too_large_resource_version(revision, error.current, cached=cached) from None

    async def wait_newer(self, revision: int) -> None:
        """Wait until the views hold a newer revision."""
        await self._views.wait_applied(revision + 1)

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        """Return the object, or None. ``revision`` None: consistent; otherwise not older than it (0: at once)."""
        if revision is None:
            await self._consistency.wait()
        elif revision:
            await self.wait_not_older(revision, cached=_is_cached(rt))
        entry = self._by_resource[rt.resource].get(namespace, name)
        if entry is not None and entry.labels is UNREADABLE:
            return await self.readable(entry)
        return entry

    async def readable(self, entry: Entry) -> Entry | None:
        """Return the object of an unreadable entry, if it can be decrypted now. StatusError 500."""
        if problem := await reread(self._views, entry.key):
            raise unreadable_error(entry, problem)
        return self._views[entry.key.resource].get(entry.key.namespace, entry.key.name)

    async def check_readable(self, rt: ResourceType, selection: Selection) -> None:
        """Try to decrypt the unreadable objects among which a selection chooses. StatusError 500: the first that fails.

        The selection can't be answered without them: their labels and fields are in the contents.
        """
        one = selection.fields is not None and selection.names_one(rt.namespaced)
        for namespace, name in sorted(self._views[rt.resource].unreadable):
            if selection.namespace and namespace != selection.namespace:
                continue
            if one and selection.fields is not None and name != selection.fields.required("metadata.name"):
                continue
            key = Key(rt.resource, namespace, name)
            if problem := await reread(self._views, key):
                raise listed_unreadable(key, problem)

    def peek(self, resource: str, namespace: str, name: str) -> Entry | None:
        """Return the object in this view, which may lag behind other replicas."""
        return self._by_resource[resource].get(namespace, name)

    def peek_for_rules(self, resource: str, namespace: str, name: str) -> Entry | None:
        """As ``peek``. StatusError 500: the object cannot be decrypted, so no rule may be decided without it."""
        entry = self._by_resource[resource].get(namespace, name)
        if entry is not None and entry.labels is UNREADABLE:
            raise unreadable_error(entry)
        return entry

    def entries_for_rules(self, resource: str, namespace: str) -> Sequence[Entry]:
        """As ``entries``. StatusError 500: one of the objects cannot be decrypted."""
        view = self._by_resource[resource]
        if not view.unreadable:
            return view.entries(namespace)
        for of_namespace, name in view.unreadable:
            if not namespace or of_namespace == namespace:
                entry = view.get(of_namespace, name)
                raise listed_unreadable(Key(resource, of_namespace, name), str(entry.mark) if entry is not None else "")
        return view.entries(namespace)

    def follow(self, resource: str, changed: Callable[[], None]) -> None:
        """Call ``changed`` in each step that changes this view of a resource, before any reader sees the change."""
        self._views.follow(resource, lambda _: changed())

    def entries(self, resource: str, namespace: str) -> Sequence[Entry]:
        """Return the objects of a namespace ("": of all) in this view, which may lag behind other replicas."""
        return self._by_resource[resource].entries(namespace)

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
        """List objects. ``revision`` None: consistent; 0: at once; else not older than it, or ``exact``ly it."""
        after: tuple[str, str] | None = None
        if limit and selection.fields is not None and selection.names_one(rt.namespaced):
            limit = 0  # a list of one object has no pages; but a token skips it, if it was on a page before
        if continue_token:
            read_at, after = parse_continue(rt, selection, continue_token)
            revision, exact = (None, False) if read_at == INCONSISTENT else (read_at, True)
        if exact and revision:
            paging = bool(continue_token)
            return await self.list_past(rt, selection, revision, limit=limit, after=after, paging=paging)
        if revision is None:
            await self._consistency.wait()
        elif revision:
            await self.wait_not_older(revision, cached=_is_cached(rt))
        if self._views[rt.resource].unreadable:
            await self.check_readable(rt, selection)
        listed = self.listed.get(rt.resource)
        if listed is None:
            listed = self.listed[rt.resource] = Listed()
        if not limit and after is None:
            applied = self._views.applied
            selected = await self._select(rt, selection)
            listed.add(len(selected))
            return Listing(entries=selected, revision=applied)
        view = self._views[rt.resource]
        entries = view.entries(selection.namespace)
        if after is not None:
            entries = view.page(selection.namespace, after, len(entries))
        page = await page_of(selection, entries, self._views.applied, limit)
        listed.add(len(page.entries))
        return page

    async def _select(self, rt: ResourceType, selection: Selection) -> Sequence[Entry]:
        """Return the selected objects of the view as it is at the call.

        The selections of kubelets need no search: one object by name (for ConfigMaps), and the pods of a node.
        """
        view = self._views[rt.resource]
        if selection.fields is None:
            return await selection.select(view.entries(selection.namespace))
        if not selection.names_one(rt.namespaced):
            node = selection.fields.required("spec.nodeName")
            if node and not selection.namespace:
                return await selection.select(view.with_field("spec.nodeName", node))
            return await selection.select(view.entries(selection.namespace))
        one = view.get(selection.namespace, selection.fields.required("metadata.name") or "")
        return await selection.select((one,)) if one is not None else ()

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
        """List objects as of a revision, after a key. StatusError 410, 504."""
        cached = _is_cached(rt) and not selection.names_one(rt.namespaced)
        await self.wait_not_older(revision, cached=cached)
        try:
            return await self.past.listing(rt, selection, revision, limit=limit, after=after)
        except Compacted:
            raise _expired(selection, after, paging) from None
        except FutureRevision as error:
            raise status.too_large_resource_version(revision, error.current, cached=cached) from None

    async def watch(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        revision: int | None,
        initial: bool | None = None,
        bookmarks: bool = False,
    ) -> Watching:
        """Start a watch. ``revision``: see the head of this file. ``initial``: sendInitialEvents, None: not set.

        A compacted revision is reported by the cursor's first batch.
        """
        send_initial = initial if initial is not None else not revision
        if revision is None:
            await self._consistency.wait()
        elif revision and initial:
            await self.wait_not_older(revision, cached=_is_cached(rt))
        if send_initial and self._views[rt.resource].unreadable:
            await self.check_readable(rt, selection)
        entries: Sequence[Entry] = ()
        applied = self._views.applied
        start = applied if send_initial or not revision else revision
        cursor = self._views.watch(rt.resource, after=start, **watch_scope(rt, selection))
        if send_initial:
            entries = await self._select(rt, selection)
        ends_with_bookmark = bool(initial) and bookmarks
        watching = Watching(entries, applied, ends_with_bookmark, cursor, selection.matcher())
        if start > self._views.applied:
            watching.future = partial(self.wait_not_older, start, cached=_is_cached(rt))
        return watching


def too_old(error: Compacted) -> status.StatusError:
    """Return the 410 of a watch, on which client-go relists."""
    return status.expired(f"too old resource version: {error.requested} ({error.compacted + 1})")


def parse_continue(rt: ResourceType, selection: Selection, text: str) -> tuple[int, tuple[str, str]]:
    """Parse a continue token into the revision of its pages (or INCONSISTENT) and the last key. StatusError 400."""
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


def _is_cached(rt: ResourceType) -> bool:
    """Tell whether kube-apiserver has a cache of the resource."""
    return rt.resource != "events"


def _expired(selection: Selection, after: tuple[str, str] | None, paging: bool) -> status.StatusError:
    if not paging or after is None:
        return status.expired(EXPIRED_LIST)
    where = ("" if selection.namespace else after[0], after[1])
    error = status.expired(EXPIRED_CONTINUE)
    error.list_metadata = {"continue": encode_continue(Continue(INCONSISTENT, where))}
    return error
