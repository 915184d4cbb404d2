"""What was at a revision: out of the views' memory while it reaches back so far, else out of the log.

What no selector looks at is not parsed: such entries have neither labels nor fields. Whole lists that were read from
the log are kept for a while, up to HELD_BYTES: who looks at a moment looks at it again, and pages go on from it. A page
is read from the log by itself, so that its cost is that of a page.

Invariant: what is kept is only ever answered for revisions that are not compacted, as the log itself would.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias, TypeVar

from kubechronicle.actors.reading.selection import Listing, Selection, page_of, within
from kubechronicle.api.errors import status
from kubechronicle.api.history.moments import Asked
from kubechronicle.api.meta.paging import Continue, encode_continue
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import NOTHING, Describe, Entry, entry_of, seal, tombstone_of
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Key, Moment, Record
from kubechronicle.eventlog.views.sorted_store import sort_key
from kubechronicle.eventlog.views.views import Views

# Records read from the log at once for a list of the past.
PAST_CHUNK = 2000
# What a list of the past may hold at most in one answer; more must be paged.
MAX_PAST = 1_000_000
# Of object JSON in lists kept, with ENTRY_BYTES for what is around each object.
HELD_BYTES = 64 * 1024 * 1024
ENTRY_BYTES = 1024
# How many lists under way are remembered with the number of objects that remain of each.
REMAINING_KEPT = 1024
# How many moments are remembered.
MOMENTS_KEPT = 1024

After: TypeAlias = "tuple[str, str] | None"


class _Past(NamedTuple):
    """A list of the past in the order of keys: what there was, and of what only tombstones are left."""

    entries: Sequence[Entry]
    erased: Sequence[Entry]


K = TypeVar("K")
V = TypeVar("V")


class PastStates:
    """See the head of this file. Revisions must not be above what the views have applied."""

    def __init__(self, *, log: RevisionLog, views: Views, describe: Describe) -> None:
        self._log = log
        self._views = views
        self._describe = describe
        self._held: OrderedDict[tuple[str, str, int, bool], tuple[_Past, int]] = OrderedDict()
        self._remaining: OrderedDict[tuple[str, str, int, After], int] = OrderedDict()
        self._moments: OrderedDict[int | datetime, Moment] = OrderedDict()
        self.bytes_held = 0
        views.on_erased(self._forget)

    async def moment(self, asked: Asked) -> Moment:
        """The revision that was the newest at the moment. BeforeHistory, FutureMoment, FutureRevision."""
        if isinstance(asked, timedelta):
            return await self._log.revision_at(asked)
        known = self._moments.get(asked)
        if known is not None and self._retained("", known.revision):
            return known
        found = await (self._log.revision_at(asked) if isinstance(asked, datetime) else self._log.moment_of(asked))
        _remember(self._moments, asked, found, MOMENTS_KEPT)
        return found

    def is_retained(self, revision: int) -> bool:
        """Whether a revision is known to be in the log and not compacted, without asking it."""
        return max(self._views.compacted_for(""), 1) <= revision <= self._views.applied

    async def get(
        self, resource: str, namespace: str, name: str, revision: int, *, described: bool = False
    ) -> Entry | None:
        """The object then, or None; ``described`` if its labels and fields are wanted. Compacted, FutureRevision.
        ``erased``: what it was was erased from history."""
        view = self._views[resource]
        if view.held_since <= revision and view.unchanged_since(revision):
            return view.get(namespace, name)
        held = self._kept(resource, namespace, revision, described)
        if held is not None:
            index = bisect_left(held.entries, (namespace, name), key=sort_key)
            there = [*held.entries[index : index + 1], *held.erased]
            return next((entry for entry in there if entry.key[1:] == (namespace, name)), None)
        record = await self._log.get_at(Key(resource, namespace, name), revision=revision)
        return self._entry(record, described) if record is not None else None

    async def listing(
        self, rt: ResourceType, selection: Selection, revision: int, *, limit: int, after: After
    ) -> Listing:
        """A list as of the revision, beginning after a key. Compacted, FutureRevision."""
        resource, namespace = rt.resource, selection.namespace
        described = selection.labels is not None or selection.fields is not None
        name = selection.fields.required("metadata.name") if selection.fields is not None else None
        snapshot = self._views[resource].snapshot(revision)
        held = _Past(snapshot, ()) if snapshot is not None else None
        if held is None:
            held = self._kept(resource, namespace, revision, described)
        if held is None and name and (namespace or not rt.namespaced):
            one = await self.get(resource, namespace, name, revision, described=True)
            held = _past([one] if one is not None else [])
        if held is None and limit:
            return await self._read_page(resource, selection, revision, limit, after)
        if held is None:
            erased_before = self._views.erasures
            held = _past(await self._read_all(resource, namespace, revision, after, described))
            if after is None and self._views.erasures == erased_before:
                self._keep((resource, namespace, revision, described), held)
        listing = page_of(selection, within(held.entries, namespace, after), revision, limit)
        return replace(listing, erased=len(within(held.erased, namespace, after))) if held.erased else listing

    def _entry(self, record: Record, described: bool) -> Entry:
        if record.erased:
            return tombstone_of(record)
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
        found: list[Entry] = []
        while True:
            chunk = await self._log.list_at(
                resource, revision=revision, namespace=namespace, after=after, limit=PAST_CHUNK
            )
            found.extend(self._entry(record, described) for record in chunk)
            if len(chunk) < PAST_CHUNK:
                return found
            if len(found) > MAX_PAST:
                raise status.request_entity_too_large("the list of the past is too long for one answer; use limit")
            after = (chunk[-1].key.namespace, chunk[-1].key.name)

    async def _read_page(self, resource: str, selection: Selection, revision: int, limit: int, after: After) -> Listing:
        """As many of the log's objects as the page takes; with selectors in chunks, until enough of them match."""
        namespace, matches = selection.namespace, selection.matcher()
        size = PAST_CHUNK if matches is not None else min(limit + 1, PAST_CHUNK)
        began, looked_at, last, more, erased = after, 0, after, False, 0
        chosen: list[Entry] = []
        while not more:
            chunk = await self._log.list_at(resource, revision=revision, namespace=namespace, after=last, limit=size)
            for record in chunk:
                if len(chosen) == limit:
                    more = True
                    break
                entry = self._entry(record, matches is not None)
                looked_at, last = looked_at + 1, (record.key.namespace, record.key.name)
                if entry.erased:
                    erased += 1
                elif matches is None or matches(entry):
                    chosen.append(entry)
            if len(chunk) < size:
                break
        if not more or last is None:
            return Listing(entries=chosen, revision=revision, erased=erased)
        remaining = None
        if matches is None:
            remaining = await self._count(resource, namespace, revision, began, looked_at, last)
        where = ("" if namespace else last[0], last[1])
        token = encode_continue(Continue(revision, where))
        return Listing(entries=chosen, revision=revision, continue_token=token, remaining=remaining, erased=erased)

    async def _count(
        self, resource: str, namespace: str, revision: int, began: After, looked_at: int, last: After
    ) -> int:
        """How many follow the key ``last``: counted for a first page, and taken from it for those that follow."""
        before = self._remaining.get((resource, namespace, revision, began))
        if before is not None:
            remaining = before - looked_at
        else:
            remaining = await self._log.count_at(resource, revision=revision, namespace=namespace, after=last)
        _remember(self._remaining, (resource, namespace, revision, last), remaining, REMAINING_KEPT)
        return remaining

    # What is kept

    def _retained(self, resource: str, revision: int) -> bool:
        return revision >= self._views.compacted_for(resource)

    def _kept(self, resource: str, namespace: str, revision: int, described: bool) -> _Past | None:
        """All objects of the namespace (maybe with those of others) at the revision, if they are kept."""
        if not self._held or not self._retained(resource, revision):
            return None
        for where in ("", namespace):
            for detail in (True,) if described else (False, True):
                held = self._held.get((resource, where, revision, detail))
                if held is not None:
                    self._held.move_to_end((resource, where, revision, detail))
                    return held[0]
        return None

    def _forget(self) -> None:
        """What was read before may be erased now."""
        self._held.clear()
        self.bytes_held = 0

    def _keep(self, key: tuple[str, str, int, bool], past: _Past) -> None:
        size = ENTRY_BYTES + sum(len(entry.json) + ENTRY_BYTES for entries in past for entry in entries)
        if size > HELD_BYTES // 2 or key in self._held:
            return
        self._held[key] = (past, size)
        self.bytes_held += size
        while self.bytes_held > HELD_BYTES:
            _, (_, freed) = self._held.popitem(last=False)
            self.bytes_held -= freed


def _past(entries: Sequence[Entry]) -> _Past:
    erased = [entry for entry in entries if entry.erased]
    return _Past([entry for entry in entries if not entry.erased] if erased else entries, erased)


def _remember(known: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    known[key] = value
    known.move_to_end(key)
    while len(known) > most:
        known.popitem(last=False)
