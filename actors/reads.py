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

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from kubechronicle.api import status
from kubechronicle.api.paging import INCONSISTENT, Continue, decode_continue, encode_continue
from kubechronicle.api.registry import ResourceType
from kubechronicle.api.selectors import FieldSelector, LabelSelector
from kubechronicle.eventlog.consistency import ConsistentRead
from kubechronicle.eventlog.cursors import WatchCursor
from kubechronicle.eventlog.entries import Describe, Entry, Event, entry_of
from kubechronicle.eventlog.errors import Compacted, FutureRevision
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.shelves import sort_key
from kubechronicle.eventlog.views import Views

# How long a read waits for a revision this replica has not reached (k8s.io/apiserver cacher: blockTimeout).
FRESHNESS_TIMEOUT = 3.0
# Records read from the log at once for a list of the past.
PAST_CHUNK = 2000
# What a list of the past may hold at most in one answer; more must be paged.
MAX_PAST = 1_000_000

EXPIRED_LIST = "The resourceVersion for the provided list is too old."
EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which objects of a resource: a namespace ("": all), a name ("": all) and selectors (None: all)."""

    namespace: str = ""
    labels: LabelSelector | None = None
    fields: FieldSelector | None = None

    def matcher(self) -> Callable[[Entry], bool] | None:
        """A predicate over entries of the namespace; None if it would always be true."""
        labels, fields = self.labels, self.fields
        if labels is not None and fields is not None:
            return lambda entry: labels.matches(entry.labels) and fields.matches(entry.fields)
        if labels is not None:
            return lambda entry: labels.matches(entry.labels)
        if fields is not None:
            return lambda entry: fields.matches(entry.fields)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One answer to a list: the entries, the revision they are of, and how it goes on. ``remaining``: how many more
    objects there are, None where it is not told (selectors, or nothing remains)."""

    entries: Sequence[Entry]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


@dataclass(slots=True)
class Watching:
    """A begun watch: first ``initial`` (as ADDED), then what ``cursor`` yields, each event through ``classify``.

    ``initial_revision``: the revision of the initial state; ``bookmark_initial``: tell its end with a bookmark.
    """

    initial: Sequence[Entry]
    initial_revision: int
    bookmark_initial: bool
    cursor: WatchCursor
    matches: Callable[[Entry], bool] | None = None

    def classify(self, event: Event) -> tuple[str, Entry] | None:
        """What this watcher is told of an event: its type and the object; None: nothing.

        An object that stops matching the selectors is DELETED for this watcher, with its last matching state at the
        event's revision; one that begins to match is ADDED.
        """
        matches, previous = self.matches, event.previous
        deleted = event.operation is Operation.DELETE
        if matches is None:
            kind = "DELETED" if deleted else ("ADDED" if previous is None else "MODIFIED")
            return kind, event.entry
        is_now = not deleted and matches(event.entry)
        was = previous is not None and matches(previous)
        if is_now:
            return ("MODIFIED" if was else "ADDED"), event.entry
        if not was or previous is None:
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
        previous.key, previous.uid, event.revision, previous.create_revision, previous.version, json,
        previous.labels, previous.fields,
    )  # fmt: skip
    event.cache["last_seen"] = entry
    return entry


class Reads:
    """Get, list and watch over the views. ``describe`` is needed for entries read from the log."""

    def __init__(self, *, log: RevisionLog, views: Views, consistency: ConsistentRead, describe: Describe) -> None:
        self._log = log
        self._views = views
        self._consistency = consistency
        self._describe = describe

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
            token = decode_continue(continue_token, namespaced=rt.namespaced and not selection.namespace)
            after = (selection.namespace or token.after[0], token.after[1])
            revision, exact = (None, False) if token.revision == INCONSISTENT else (token.revision, True)
        if exact and revision:
            return await self._list_past(rt, selection, revision, limit=limit, after=after, paging=bool(continue_token))
        if revision is None:
            await self._consistency.wait()
        elif revision:
            await self.wait_not_older(revision)
        view = self._views[rt.resource]
        applied = self._views.applied
        entries: Sequence[Entry]
        entries = view.entries(selection.namespace)
        if after is not None:
            entries = view.page(selection.namespace, after, len(entries))
        return _page(selection, entries, applied, limit)

    async def _list_past(
        self,
        rt: ResourceType,
        selection: Selection,
        revision: int,
        *,
        limit: int,
        after: tuple[str, str] | None,
        paging: bool,
    ) -> Listing:
        await self.wait_not_older(revision)
        view = self._views[rt.resource]
        held = view.snapshot(revision)
        if held is None:
            try:
                held = await self._read_past(rt.resource, selection.namespace, revision, after)
            except Compacted:
                raise self._expired(selection, after, paging) from None
            except FutureRevision as error:
                raise status.too_large_resource_version(revision, error.current) from None
        entries = _within(held, selection.namespace, after)
        return _page(selection, entries, revision, limit)

    @staticmethod
    def _expired(selection: Selection, after: tuple[str, str] | None, paging: bool) -> status.StatusError:
        if not paging or after is None:
            return status.expired(EXPIRED_LIST)
        where = ("" if selection.namespace else after[0], after[1])
        error = status.expired(EXPIRED_CONTINUE)
        error.list_metadata = {"continue": encode_continue(Continue(INCONSISTENT, where))}
        return error

    async def _read_past(
        self, resource: str, namespace: str, revision: int, after: tuple[str, str] | None
    ) -> Sequence[Entry]:
        found: list[Entry] = []
        while True:
            chunk = await self._log.list_at(
                resource, revision=revision, namespace=namespace, after=after, limit=PAST_CHUNK
            )
            found.extend(entry_of(record, self._describe) for record in chunk)
            if len(chunk) < PAST_CHUNK:
                return found
            if len(found) > MAX_PAST:
                raise status.request_entity_too_large("the list of the past is too long for one answer; use limit")
            after = (chunk[-1].key.namespace, chunk[-1].key.name)

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
        view = self._views[rt.resource]
        name = selection.fields.required("metadata.name") if selection.fields is not None else None
        node = selection.fields.required("spec.nodeName") if selection.fields is not None else None
        matches = selection.matcher()
        entries: Sequence[Entry] = ()
        start = self._views.applied if send_initial or not revision else revision
        if send_initial:
            entries = view.entries(selection.namespace)
            if matches is not None:
                entries = [entry for entry in entries if matches(entry)]
        cursor = self._views.watch(
            rt.resource,
            after=start,
            namespace=selection.namespace,
            name=name if name is not None and (selection.namespace or not rt.namespaced) else "",
            field=("spec.nodeName", node) if node else None,
        )
        # A watch from 0 with bookmarks ends its initial events with one as well (KEP-3157's legacy form).
        ends_with_bookmark = send_initial and bookmarks and (initial is True or revision == 0)
        return Watching(entries, self._views.applied, ends_with_bookmark, cursor, matches)


def too_old(error: Compacted) -> status.StatusError:
    """410 as a watch tells it (client-go relists on it)."""
    return status.expired(f"too old resource version: {error.requested} ({error.compacted + 1})")


def _within(entries: Sequence[Entry], namespace: str, after: tuple[str, str] | None) -> Sequence[Entry]:
    """Those of a namespace ("": of all) that follow the key; ``entries`` are in key order."""
    if not namespace and after is None:
        return entries
    start = bisect_right(entries, after or (namespace, ""), key=sort_key)
    end = bisect_left(entries, (namespace + "\0", ""), key=sort_key) if namespace else len(entries)
    return entries[start:end]


def _page(selection: Selection, entries: Sequence[Entry], revision: int, limit: int) -> Listing:
    """Apply the selectors and the limit to the entries of the namespace, in key order."""
    matches = selection.matcher()
    if not limit:
        if matches is not None:
            entries = [entry for entry in entries if matches(entry)]
        return Listing(entries=entries, revision=revision)
    chosen: list[Entry] = []
    looked_at = 0
    for entry in entries:
        if len(chosen) == limit:
            break
        looked_at += 1
        if matches is None or matches(entry):
            chosen.append(entry)
    remaining = len(entries) - looked_at
    if not remaining:
        return Listing(entries=chosen, revision=revision)
    # With a selector nobody knows how many of the rest match, and whether any does: the token is given nevertheless.
    last = entries[looked_at - 1].key
    where = ("" if selection.namespace else last.namespace, last.name)
    return Listing(
        entries=chosen,
        revision=revision,
        continue_token=encode_continue(Continue(revision, where)),
        remaining=remaining if matches is None else None,
    )
