"""Objects as of a revision: from the views' memory if it reaches back so far, else from the log.

Objects are parsed for labels and fields only if a selector needs them. Complete lists read from the log are cached, up
to CACHE_BYTES: clients read a moment repeatedly, or page by page. A single page is read from the log alone, so it costs
no more than a page.

Invariant: the cache answers only for revisions that are not compacted, as the log would.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias, TypeVar

from kubechronicle.actors.reading.selection import Listing, Selection, listed_unreadable, page_of, within
from kubechronicle.api.errors import status
from kubechronicle.api.history.moments import Asked
from kubechronicle.api.meta.list_options import Continue, encode_continue
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import NOTHING, Describe, Entry, entry_of, seal, tombstone_of
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Key, Moment, Record
from kubechronicle.eventlog.views.sorted_store import sort_key
from kubechronicle.eventlog.views.views import Views

# Records read from the log at once.
PAST_CHUNK = 2000
# Objects, and bytes of objects, of a list without a limit; a longer one must be read in pages.
MAX_PAST = 1_000_000
MAX_PAST_BYTES = 64 * 1024 * 1024
# Bytes of a page, after which it ends even if it has fewer objects than its limit.
PAGE_BYTES = 16 * 1024 * 1024
# Size of the list cache: the objects' JSON, and ENTRY_BYTES of overhead for each.
CACHE_BYTES = 64 * 1024 * 1024
ENTRY_BYTES = 1024
# Size of the cache of remaining counts: pages in progress.
CACHED_COUNTS = 1024
# Size of the cache of moments.
CACHED_MOMENTS = 1024

After: TypeAlias = "tuple[str, str] | None"


class _PastList(NamedTuple):
    """A list of the past in key order: the objects, and the tombstones of erased objects."""

    entries: Sequence[Entry]
    erased: Sequence[Entry]


K = TypeVar("K")
V = TypeVar("V")


class PastStates:
    """Reads as of a revision, which must not be above the views' applied one."""

    def __init__(self, *, log: RevisionLog, views: Views, describe: Describe) -> None:
        self._log = log
        self._views = views
        self._describe = describe
        self._cached_lists: OrderedDict[tuple[str, str, int, bool], tuple[_PastList, int]] = OrderedDict()
        self._remaining: OrderedDict[tuple[str, str, int, After], int] = OrderedDict()
        self._moments: OrderedDict[int | datetime, Moment] = OrderedDict()
        self.cached_bytes = 0
        views.on_erased(self._clear)

    async def moment(self, asked: Asked) -> Moment:
        """Return the newest revision at the moment. BeforeHistory, FutureMoment, FutureRevision."""
        if isinstance(asked, timedelta):
            return await self._log.revision_at(asked)
        known = self._moments.get(asked)
        if known is not None and self._retained("", known.revision):
            return known
        moment = await (self._log.revision_at(asked) if isinstance(asked, datetime) else self._log.moment_of(asked))
        _cache(self._moments, asked, moment, CACHED_MOMENTS)
        return moment

    def is_retained(self, revision: int) -> bool:
        """True if a revision is known to be in the log and not compacted, without a query."""
        return max(self._views.compacted_for(""), 1) <= revision <= self._views.applied

    async def get(
        self, resource: str, namespace: str, name: str, revision: int, *, described: bool = False
    ) -> Entry | None:
        """Return the object at a revision, or None. ``described``: with labels and fields. Compacted, FutureRevision.

        An entry with ``erased`` is the tombstone of an object that was erased from history. StatusError 500: the object
        cannot be decrypted.
        """
        view = self._views[resource]
        if view.held_since <= revision and view.unchanged_since(revision):
            entry = view.get(namespace, name)
            if entry is None or not entry.unreadable:
                return entry
        past = self._cached(resource, namespace, revision, described)
        if past is not None:
            index = bisect_left(past.entries, (namespace, name), key=sort_key)
            candidates = [*past.entries[index : index + 1], *past.erased]
            return next((entry for entry in candidates if entry.key[1:] == (namespace, name)), None)
        record = await self._log.get_at(Key(resource, namespace, name), revision=revision)
        if record is not None and record.problem:
            raise status.internal_error(record.problem)
        return self._entry(record, described) if record is not None else None

    async def listing(
        self, rt: ResourceType, selection: Selection, revision: int, *, limit: int, after: After
    ) -> Listing:
        """List objects at a revision, after a key. Compacted, FutureRevision.

        StatusError 500: one of them cannot be decrypted.
        """
        resource, namespace = rt.resource, selection.namespace
        described = selection.labels is not None or selection.fields is not None
        name = selection.fields.required("metadata.name") if selection.fields is not None else None
        snapshot = self._views[resource].snapshot(revision)
        past = _PastList(snapshot, ()) if snapshot is not None else None
        if past is None:
            past = self._cached(resource, namespace, revision, described)
        if past is None and name and (namespace or not rt.namespaced):
            one = await self.get(resource, namespace, name, revision, described=True)
            past = _past_list([one] if one is not None else [])
        if past is None and limit:
            return await self._read_page(resource, selection, revision, limit, after)
        if past is None:
            erased_before = self._views.erasures
            past = _past_list(await self._read_all(resource, namespace, revision, after, described))
            if after is None and self._views.erasures == erased_before:
                self._add((resource, namespace, revision, described), past)
        listing = await page_of(selection, within(past.entries, namespace, after), revision, limit)
        return replace(listing, erased=len(within(past.erased, namespace, after))) if past.erased else listing

    def _entry(self, record: Record, described: bool) -> Entry:
        if record.erased:
            return tombstone_of(record)
        if record.problem:
            raise listed_unreadable(record.key, record.problem)
        if described:
            return entry_of(record, self._describe)
        return Entry(
            record.key,
            record.uid,
            record.revision,
            record.create_revision,
            record.version,
            seal(record.body, record.revision),
            NOTHING,
            NOTHING,
        )

    async def _read_all(
        self, resource: str, namespace: str, revision: int, after: After, described: bool
    ) -> Sequence[Entry]:
        entries: list[Entry] = []
        size = 0
        while True:
            chunk = await self._log.list_at(
                resource, revision=revision, namespace=namespace, after=after, limit=PAST_CHUNK
            )
            entries.extend(self._entry(record, described) for record in chunk)
            if chunk.is_last(PAST_CHUNK):
                return entries
            size += sum(len(record.body) for record in chunk)
            if size > MAX_PAST_BYTES or len(entries) > MAX_PAST:
                raise status.request_entity_too_large("the list of the past is too long for one answer; use limit")
            after = (chunk[-1].key.namespace, chunk[-1].key.name)

    async def _read_page(self, resource: str, selection: Selection, revision: int, limit: int, after: After) -> Listing:
        """Read one page of objects from the log; with selectors in chunks, until enough objects match."""
        namespace, matches = selection.namespace, selection.matcher()
        size = PAST_CHUNK if matches is not None else min(limit + 1, PAST_CHUNK)
        first_key, scanned, last, more, erased = after, 0, after, False, 0
        selected: list[Entry] = []
        held = 0
        while not more:
            chunk = await self._log.list_at(resource, revision=revision, namespace=namespace, after=last, limit=size)
            for record in chunk:
                if len(selected) == limit or held >= PAGE_BYTES:
                    more = True
                    break
                entry = self._entry(record, matches is not None)
                scanned, last = scanned + 1, (record.key.namespace, record.key.name)
                if entry.erased:
                    erased += 1
                elif matches is None or matches(entry):
                    selected.append(entry)
                    held += len(entry.json)
            if chunk.is_last(size):
                break
        if not more or last is None:
            return Listing(entries=selected, revision=revision, erased=erased)
        remaining = None
        if selection.counts:
            remaining = await self._count(resource, namespace, revision, first_key, scanned, last)
        where = ("" if namespace else last[0], last[1])
        token = encode_continue(Continue(revision, where))
        return Listing(entries=selected, revision=revision, continue_token=token, remaining=remaining, erased=erased)

    async def _count(
        self, resource: str, namespace: str, revision: int, first_key: After, scanned: int, last: After
    ) -> int:
        """Return the number of objects after the key ``last``: counted for a first page, then subtracted."""
        before = self._remaining.get((resource, namespace, revision, first_key))
        if before is not None:
            remaining = before - scanned
        else:
            remaining = await self._log.count_at(resource, revision=revision, namespace=namespace, after=last)
        _cache(self._remaining, (resource, namespace, revision, last), remaining, CACHED_COUNTS)
        return remaining

    # The cache of lists

    def _retained(self, resource: str, revision: int) -> bool:
        return revision >= self._views.compacted_for(resource)

    def _cached(self, resource: str, namespace: str, revision: int, described: bool) -> _PastList | None:
        """Return all objects of the namespace (perhaps with those of others) at the revision, if they are cached."""
        if not self._cached_lists or not self._retained(resource, revision):
            return None
        for where in ("", namespace):
            for detail in (True,) if described else (False, True):
                past = self._cached_lists.get((resource, where, revision, detail))
                if past is not None:
                    self._cached_lists.move_to_end((resource, where, revision, detail))
                    return past[0]
        return None

    def _clear(self) -> None:
        """Clear the caches after an erasure, or when the log went back, which may concern any of them."""
        self._cached_lists.clear()
        self._remaining.clear()
        self._moments.clear()
        self.cached_bytes = 0

    def _add(self, key: tuple[str, str, int, bool], past: _PastList) -> None:
        size = ENTRY_BYTES + sum(len(entry.json) + ENTRY_BYTES for entries in past for entry in entries)
        if size > CACHE_BYTES // 2 or key in self._cached_lists:
            return
        self._cached_lists[key] = (past, size)
        self.cached_bytes += size
        while self.cached_bytes > CACHE_BYTES:
            _, (_, freed) = self._cached_lists.popitem(last=False)
            self.cached_bytes -= freed


def _past_list(entries: Sequence[Entry]) -> _PastList:
    erased = [entry for entry in entries if entry.erased]
    return _PastList([entry for entry in entries if not entry.erased] if erased else entries, erased)


def _cache(known: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    known[key] = value
    known.move_to_end(key)
    while len(known) > most:
        known.popitem(last=False)
