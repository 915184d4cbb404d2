"""Reads of a custom resource in a version that a webhook converts to: get, list and watch with converted entries.

Selectors apply to the converted objects. So a list or watch with selectors reads the whole namespace, and its limit
does not apply: a page of stored objects may hold none that matches. Names stay the same, so that a selector of one name
reads one object.

A watch waits for objects that cannot be converted (`ConvertedCursor`). One that begins with the newest state, or has
to tell where its first state ends, waits for that for 3 s, as kube-apiserver waits for its cache. Then it ends with
kube-apiserver's 504.

A cursor whose events hold converted objects.

An event that cannot be converted is not passed over: the cursor stays before it, and tries again, until the watch ends.
So a client misses nothing when the webhook works again, and its bookmarks stay behind. kube-apiserver, whose cache
stops there, sends no events either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final

import trio

from kubechronicle.actors.reading.conversions import Conversions
from kubechronicle.actors.reading.reads import Listing, ObjectReads, Selection, Watching
from kubechronicle.api.codecs import unstructured
from kubechronicle.api.errors import status
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import conversion
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors.field_selectors import FieldSelector, custom_fields, describe
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.records import Operation
from kubechronicle.eventlog.views.cursors import Cursor

PAUSE: Final = 1.0
"""Seconds until a failed conversion is tried again; doubled each time."""
LONGEST_PAUSE: Final = 30.0


class ConvertedCursor:
    """``convert``: converts an event. StatusError. ``failure``: ends the watch at once."""

    def __init__(self, cursor: Cursor, convert: Callable[[Event], Awaitable[Event]]) -> None:
        self.stored = cursor
        self.failure: StatusError | None = None
        self._convert = convert
        self._held: deque[Event] = deque()
        self._passed = 0
        self._ended = False
        self._waiting: trio.CancelScope | None = None

    def hold(self, initial: Sequence[Entry]) -> None:
        """Let objects that exist when the watch begins come before all other events, when they can be converted."""
        now = datetime.now(UTC)
        ordered = sorted(initial, key=attrgetter("revision"))
        self._held.extend(Event(entry.revision, Operation.CREATE, entry, None, now) for entry in ordered)

    @property
    def revision(self) -> int:
        """The revision up to which all events have been returned."""
        return self._passed if self._held else self.stored.revision

    async def next_batch(self, deadline: float | None = None) -> list[Event]:
        """Return the next events as a cursor does. StatusError: the watch ends."""
        if self.failure is not None:
            raise self.failure
        pause = PAUSE
        while True:
            if not self._held:
                self._passed = self.stored.revision
                self._held.extend(await self.stored.next_batch(deadline))
            events = await self._converted()
            if events or not self._held or not await self._wait(pause, deadline):
                return events
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _converted(self) -> list[Event]:
        """Return the held events up to one that cannot be converted."""
        events: list[Event] = []
        while self._held:
            try:
                events.append(await self._convert(self._held[0]))
            except StatusError:
                break
            self._passed = self._held.popleft().revision
        return events

    async def _wait(self, pause: float, deadline: float | None) -> bool:
        """Wait before another attempt. Return False if the deadline comes before it, or the watch has ended."""
        if self._ended:
            return False
        until = trio.current_time() + pause
        with trio.CancelScope(deadline=until if deadline is None else min(until, deadline)) as self._waiting:
            await trio.sleep_forever()
        return not self._ended and (deadline is None or trio.current_time() < deadline)

    def end(self) -> None:
        self._ended = True
        if self._waiting is not None:
            self._waiting.cancel()
        self.stored.end()


FRESH_SECONDS: Final = 3.0
"""The time that a watch waits for the newest state, as kube-apiserver's cache does."""
_NAMES: Final = ("metadata.name", "metadata.namespace")


def needs_webhook(rt: ResourceType) -> bool:
    """Tell whether objects of the type may need a webhook to be read in its version."""
    return rt.custom is not None and rt.custom.conversion.get("strategy") == "Webhook"


class ConvertedEntries:
    """Converts entries of one type. ``rt``: the type, in the version of the request."""

    def __init__(self, conversions: Conversions, rt: ResourceType) -> None:
        self._conversions = conversions
        self._rt = rt
        self._prefix = b'{"apiVersion":"%b",' % rt.api_version.encode()
        self._fields = custom_fields(rt.selectable_fields)

    async def convert(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entries in the version of the request; those that are stored in it stay. StatusError 500."""
        places = [index for index, entry in enumerate(entries) if not entry.json.startswith(self._prefix)]
        if not places:
            return entries
        custom, version = self._rt.custom, self._rt.api_version
        objects = [conversion.as_stored(self._rt, entries[index].object()) for index in places]
        found = list(entries)
        for index, obj in zip(places, await self._conversions.convert(custom, objects, version), strict=True):
            found[index] = self._entry(entries[index], obj)
        return found

    async def one(self, entry: Entry) -> Entry:
        """Return one entry as ``convert``."""
        return (await self.convert((entry,)))[0]

    async def event(self, event: Event) -> Event:
        """Return an event with converted objects."""
        both = [event.entry] if event.previous is None else [event.entry, event.previous]
        if any(entry.withheld for entry in both):
            return event
        new, *previous = await self.convert(both)
        return Event(event.revision, event.operation, new, previous[0] if previous else None, event.committed_at)

    async def object(self, obj: Object) -> Object:
        """Return an object that is in the stored version. StatusError 500."""
        stored = conversion.as_stored(self._rt, obj)
        return (await self._conversions.convert(self._rt.custom, [stored], self._rt.api_version))[0]

    def _entry(self, entry: Entry, obj: Object) -> Entry:
        obj = conversion.as_served(self._rt, obj)
        labels, fields = describe(self._rt.resource, obj, self._fields)
        return Entry(
            entry.key,
            entry.uid,
            entry.revision,
            entry.create_revision,
            entry.version,
            unstructured.encode(obj),
            labels,
            fields,
            self._rt.custom.marks.kept,  # defaults are set before the conversion alone
        )


async def list_both(
    reads: ObjectReads,
    converted: ConvertedEntries,
    rt: ResourceType,
    selection: Selection,
    *,
    limit: int,
    **listing: Any,
) -> tuple[Listing, Sequence[Entry]]:
    """List the objects whose converted forms are selected. Return them as stored, and converted.

    ``listing``: as in Reads.list. StatusError: an object cannot be converted. kube-apiserver answers with 500 where it
    reads etcd, and with 429 where its watch cache would serve the list, which never gets ready (KEP-4568).
    """
    selects = selection.labels is not None or selection.fields is not None
    whole = await reads.list(rt, _by_name(selection), limit=0 if selects else limit, **listing)
    try:
        chosen = await selection.select(await converted.convert(whole.entries))
    except status.StatusError as error:
        if listing.get("continue_token") or listing.get("exact") or (limit and not selects):
            raise
        raise status.too_many_requests(f"storage is (re)initializing: {error.message}") from None
    keys = {entry.key for entry in chosen}
    return replace(whole, entries=[entry for entry in whole.entries if entry.key in keys]), chosen


class ConvertedReads:
    """``reads`` of one type, with converted entries."""

    def __init__(self, reads: ObjectReads, entries: ConvertedEntries) -> None:
        self._reads = reads
        self._entries = entries

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        entry = await self._reads.get(rt, namespace, name, revision=revision)
        return None if entry is None else await self._entries.one(entry)

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
        stored, entries = await list_both(
            self._reads,
            self._entries,
            rt,
            selection,
            limit=limit,
            continue_token=continue_token,
            revision=revision,
            exact=exact,
        )
        return replace(stored, entries=entries)

    async def watch(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        revision: int | None,
        initial: bool | None = None,
        bookmarks: bool = False,
    ) -> Watching:
        named = _by_name(selection)
        watching = await self._reads.watch(rt, named, revision=revision, initial=initial, bookmarks=bookmarks)
        cursor = ConvertedCursor(watching.cursor, self._entries.event)
        matched = replace(watching, cursor=cursor, matches=selection.matcher())
        newest = revision is None or watching.bookmark_initial
        try:
            initial_entries = await self._converted(watching.initial, FRESH_SECONDS if newest else 0)
            matched.initial = await selection.select(initial_entries)
        except status.StatusError as error:
            matched.initial = ()
            if newest:
                matched.bookmark_initial, cursor.failure = False, _late(watching, error)
            else:
                cursor.hold(watching.initial)
        return matched

    async def _converted(self, entries: Sequence[Entry], seconds: float) -> Sequence[Entry]:
        """Return converted entries; failures are tried again for some seconds. StatusError 500."""
        deadline = trio.current_time() + seconds
        while True:
            try:
                return await self._entries.convert(entries)
            except status.StatusError:
                if trio.current_time() + PAUSE > deadline:
                    raise
                await trio.sleep(PAUSE)


def _by_name(selection: Selection) -> Selection:
    """Return the part of a selection that holds before a conversion, too."""
    terms = [term for term in selection.fields.terms if term.field in _NAMES] if selection.fields is not None else ()
    return Selection(namespace=selection.namespace, fields=FieldSelector(terms) if terms else None)


def _late(watching: Watching, error: status.StatusError) -> status.StatusError:
    """Return the end of a watch whose first objects cannot be converted: only an older state can be shown."""
    shown = min(entry.revision for entry in watching.initial) - 1
    late = status.too_large_resource_version(watching.initial_revision, shown)
    return status.StatusError(late.code, late.reason, f"{late.message}: {error.message}", details=late.details)
