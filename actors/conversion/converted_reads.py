"""Reads of a custom resource in a version that a webhook converts to: get, list and watch with converted entries.

Selectors apply to the converted objects. So a list or watch with selectors reads the whole namespace, and its limit
does not apply: a page of stored objects may hold none that matches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kubechronicle.actors.conversion.conversions import Conversions
from kubechronicle.actors.reading.reads import Listing, ObjectReads, Selection, Watching
from kubechronicle.api.codecs import unstructured
from kubechronicle.api.pipeline import custom_versions
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors.field_selectors import custom_fields, describe
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.watching.cursors import Cursor


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
        objects = [custom_versions.as_stored(self._rt, entries[index].object()) for index in places]
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
        stored = custom_versions.as_stored(self._rt, obj)
        return (await self._conversions.convert(self._rt.custom, [stored], self._rt.api_version))[0]

    def _entry(self, entry: Entry, obj: Object) -> Entry:
        obj = custom_versions.as_served(self._rt, obj)
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

    ``listing``: as in Reads.list. StatusError 500: an object cannot be converted.
    """
    selects = selection.labels is not None or selection.fields is not None
    whole = await reads.list(rt, Selection(namespace=selection.namespace), limit=0 if selects else limit, **listing)
    chosen = selection.select(await converted.convert(whole.entries))
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
        whole = Selection(namespace=selection.namespace)
        watching = await self._reads.watch(rt, whole, revision=revision, initial=initial, bookmarks=bookmarks)
        first = selection.select(await self._entries.convert(watching.initial))
        cursor = ConvertedCursor(watching.cursor, self._entries)
        return replace(watching, initial=first, cursor=cursor, matches=selection.matcher())


class ConvertedCursor:
    """A cursor whose events hold converted objects."""

    def __init__(self, cursor: Cursor, entries: ConvertedEntries) -> None:
        self.stored = cursor
        self._entries = entries

    @property
    def revision(self) -> int:
        return self.stored.revision

    async def next_batch(self, deadline: float | None = None) -> list[Event]:
        """Return the next events as a cursor does. StatusError 500 if one cannot be converted."""
        return [await self._entries.event(event) for event in await self.stored.next_batch(deadline)]

    def end(self) -> None:
        self.stored.end()
