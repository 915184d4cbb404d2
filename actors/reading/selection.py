"""Selections of objects, and pages of the selected entries in key order. Long scans pause for other tasks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from kubechronicle.actors.pauses import Pauses
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.meta.list_options import Continue, encode_continue
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors.field_selectors import FieldSelector, LabelSelector
from kubechronicle.api.selectors.shard_selectors import ShardSelector
from kubechronicle.eventlog.entries import UNREADABLE, Entry, Event
from kubechronicle.eventlog.records import Key, Operation
from kubechronicle.eventlog.views.cursors import Cursor
from kubechronicle.eventlog.views.sorted_store import sort_key

# -- unreadable --------------------------------------------------------------------------------------------------------
#
# Errors for objects that cannot be decrypted, in the words of kube-apiserver: a read names the reason, a list also the
# object.


def unreadable_error(entry: Entry, problem: str = "") -> status.StatusError:
    """Return the 500 for an object. ``problem``: the reason, if it is not the one in the entry."""
    return status.internal_error(problem or str(entry.mark))


def listed_unreadable(key: Key, problem: str) -> status.StatusError:
    """Return the 500 for a list with such an object."""
    path = "/".join(part for part in key if part)
    return status.internal_error(f"unable to transform key {go_quote('/registry/' + path)}: {problem}")


# -- watches -----------------------------------------------------------------------------------------------------------
#
# A started watch: its initial state, its cursor, and the type of each event for its watcher.


@dataclass(slots=True, eq=False, weakref_slot=True)
class Watching:
    """A started watch: first ``initial`` (as ADDED), then the events of ``cursor``, each passed through ``classify``.

    ``initial_revision``: the revision of the initial state.
    ``bookmark_initial``: send a bookmark after the initial state.
    ``matches``: the selectors; None: every object matches.
    ``future``: waits for the revision to begin at, which this replica has not reached yet. StatusError 504. A log that
    went back (a restore) may give that revision to another change later, which the client would take for a known one.
    """

    initial: Sequence[Entry]
    initial_revision: int
    bookmark_initial: bool
    cursor: Cursor
    matches: Callable[[Entry], bool] | None = None
    future: Callable[[], Awaitable[None]] | None = None

    def classify(self, event: Event) -> tuple[str, Entry] | None:
        """Return an event's type and object for this watcher; None: the event does not concern it.

        An object that stops matching the selectors is DELETED for this watcher, with its last matching state at the
        event's revision. One that begins to match is ADDED. A previous state that was erased, or cannot be decrypted,
        may have matched. After it, a matching object is therefore ADDED, as for a new watcher, and another one is
        DELETED. StatusError: the object cannot be decrypted.
        """
        matches, previous = self.matches, event.previous
        if event.entry.labels is UNREADABLE:
            raise unreadable_error(event.entry)
        deleted = event.operation is Operation.DELETE
        if matches is None:
            new = previous is None or previous.withheld
            return ("DELETED" if deleted else "ADDED" if new else "MODIFIED"), event.entry
        is_now = not deleted and matches(event.entry)
        was = previous is not None and matches(previous)
        if is_now:
            known = was and previous is not None and not previous.withheld
            return ("MODIFIED" if known else "ADDED"), event.entry
        if previous is None or not (was or previous.withheld or event.entry.withheld):
            return None
        return "DELETED", event.entry if deleted else last_seen(event, previous)


def last_seen(event: Event, previous: Entry) -> Entry:
    """Return the object before an event, sealed with the event's revision. It is made once for each event."""
    cached = event.cache.get("last_seen")
    if isinstance(cached, Entry):
        return cached
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


# -- selection ---------------------------------------------------------------------------------------------------------

SCANNED = 1024
"""Entries between two pauses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A part of a resource: a namespace ("": all) and selectors (None: all). ``shard``: a share of the objects."""

    namespace: str = ""
    labels: LabelSelector | None = None
    fields: FieldSelector | None = None
    shard: ShardSelector | None = None

    @property
    def counts(self) -> bool:
        """Tell whether a page of it counts the rest: as in kube-apiserver, a share of objects does not prevent it."""
        return self.labels is None and self.fields is None

    def matcher(self) -> Callable[[Entry], bool] | None:
        """Return a predicate over entries of the namespace; None: every entry matches."""
        described, shard = self._described(), self.shard
        if shard is None:
            return described
        if described is None:
            return lambda entry: shard.matches(entry.key.namespace, entry.uid)
        return lambda entry: described(entry) and shard.matches(entry.key.namespace, entry.uid)

    def _described(self) -> Callable[[Entry], bool] | None:
        """Return a predicate of the labels and fields alone."""
        labels, fields = self.labels, self.fields
        if labels is not None and fields is not None:
            return lambda entry: labels.matches(entry.labels) and fields.matches(entry.fields)
        if labels is not None:
            return lambda entry: labels.matches(entry.labels)
        if fields is not None:
            return lambda entry: fields.matches(entry.fields)
        return None

    def names_one(self, namespaced: bool) -> bool:
        """Tell whether at most one object can match, by its name: kube-apiserver reads it without paging."""
        if self.fields is None or (namespaced and not self.namespace):
            return False
        return self.fields.required("metadata.name") is not None

    async def select(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return the matching entries. A short scan has no checkpoint."""
        if (self.labels is None and self.fields is None and self.shard is None) or len(entries) <= SCANNED:
            return self._matching(entries)
        selected: list[Entry] = []
        async for part in in_turns(entries):
            selected += self._matching(part)
        return selected

    def _matching(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return the matching entries.

        A list with selectors scans many objects for a few, such as the pods of one node. The usual selectors, one key
        with one value, therefore cost no function call for each entry.
        """
        labels, fields = self.labels, self.fields
        if self.shard is not None:
            matches = self.matcher()
            return [each for each in entries if matches is None or matches(each)]
        if labels is None and fields is None:
            return entries
        if labels is not None and fields is not None:
            return [each for each in entries if labels.matches(each.labels) and fields.matches(each.fields)]
        if labels is not None:
            if len(labels.requirements) == 1 and labels.requirements[0].operator in ("=", "=="):
                key, value = labels.requirements[0].key, labels.requirements[0].values[0]
                return [each for each in entries if each.labels.get(key) == value]
            return [each for each in entries if labels.matches(each.labels)]
        if fields is not None and len(fields.terms) == 1 and fields.terms[0].equal:
            name, value = fields.terms[0].field, fields.terms[0].value
            return [each for each in entries if each.fields.get(name, "") == value]
        return [each for each in entries if fields is None or fields.matches(each.fields)]


async def in_turns(entries: Sequence[Entry]) -> AsyncIterator[Sequence[Entry]]:
    """Yield parts of the entries, and let other tasks run from time to time."""
    pauses = Pauses()
    for start in range(0, len(entries), SCANNED):
        yield entries[start : start + SCANNED]
        await pauses.pause()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One page of a list.

    ``revision``: the revision of the entries.
    ``continue_token``: for the next page; "": this is the last one.
    ``remaining``: the number of objects on later pages; None: there are none, or selectors prevent counting.
    ``erased``: the number of objects left out because they were erased from history. Selectors cannot judge them.
    ``shard``: the share of the objects that it has; None: all.
    """

    entries: Sequence[Entry]
    revision: int
    continue_token: str = ""
    remaining: int | None = None
    erased: int = 0
    shard: ShardSelector | None = None


class ListsOnly:
    """The get and watch of an ObjectReads whose resources can only be listed: both are refused. StatusError 405."""

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        raise status.method_not_supported(rt, "get")

    async def watch(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        revision: int | None,
        initial: bool | None = None,
        bookmarks: bool = False,
    ) -> Watching:
        raise status.method_not_supported(rt, "watch")


class RevisionSpan(Sequence[Entry]):
    """A part of a sequence without a copy, so that each page of 100,000 objects does not copy all later ones."""

    __slots__ = ("_entries", "_range")

    def __init__(self, entries: Sequence[Entry], start: int, end: int) -> None:
        self._entries = entries
        self._range = range(start, max(start, end))

    def __len__(self) -> int:
        return len(self._range)

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...

    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        place = self._range[index]
        return self._entries[place] if isinstance(place, int) else self._entries[place.start : place.stop]

    def __iter__(self) -> Iterator[Entry]:
        return map(self._entries.__getitem__, self._range)


def within(entries: Sequence[Entry], namespace: str, after: tuple[str, str] | None) -> Sequence[Entry]:
    """Return the entries of a namespace ("": of all) after a key. ``entries`` are in key order."""
    if not namespace and after is None:
        return entries
    start, end = bisect_right(entries, after or (namespace, ""), key=sort_key), len(entries)
    if namespace and entries and entries[-1].key.namespace != namespace:
        end = bisect_left(entries, (namespace + "\0", ""), key=sort_key)
    return entries if (start, end) == (0, len(entries)) else RevisionSpan(entries, start, end)


async def page_of(selection: Selection, entries: Sequence[Entry], revision: int, limit: int) -> Listing:
    """Apply the selectors and the limit to the entries of the namespace, in key order."""
    if not limit:
        return Listing(entries=(await selection.select(entries))[:], revision=revision)
    matches = selection.matcher()
    selected, scanned = entries[:limit], min(limit, len(entries))
    if matches is not None:
        selected, scanned = await _first_matching(entries, matches, limit)
    remaining = len(entries) - scanned
    if not remaining:
        return Listing(entries=selected, revision=revision)
    # With selectors the rest may hold no match; the token is sent nevertheless.
    last = entries[scanned - 1].key
    where = ("" if selection.namespace else last.namespace, last.name)
    return Listing(
        entries=selected,
        revision=revision,
        continue_token=encode_continue(Continue(revision, where)),
        remaining=remaining if selection.counts else None,
    )


async def _first_matching(
    entries: Sequence[Entry], matches: Callable[[Entry], bool], limit: int
) -> tuple[Sequence[Entry], int]:
    """Return the first matching entries, at most ``limit``, and the number of entries scanned."""
    selected: list[Entry] = []
    scanned = 0
    async for part in in_turns(entries):
        for entry in part:
            if len(selected) == limit:
                return selected, scanned
            scanned += 1
            if matches(entry):
                selected.append(entry)
    return selected, scanned
