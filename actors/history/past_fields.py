"""Selectable fields of custom resources in the past: those of the definition of the moment, with its defaults.

Views and log describe objects by the present definition. So a selector of such fields reads all objects of the
namespace as of the moment, and describes them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from kubechronicle.actors.pauses import Pauses
from kubechronicle.actors.reading.reads import Listing, Selection
from kubechronicle.actors.reading.selection import page_of, within
from kubechronicle.api.custom.served import getter, selectable_fields
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import NOTHING, Entry


def selects_by_definition(rt: ResourceType, selection: Selection) -> bool:
    """Tell whether a selection depends on selectable fields of a definition."""
    if rt.custom is None or selection.fields is None:
        return False
    return any(term.field in rt.selectable_fields for term in selection.fields.terms)


class PastFields:
    """Describes the entries of a type of the past. ``rt``: the type as it was served at the moment."""

    def __init__(self, rt: ResourceType) -> None:
        self._getters = tuple(getter(field) for field in sorted(selectable_fields((rt,))))

    async def page(
        self, listing: Listing, selection: Selection, revision: int, limit: int, after: tuple[str, str] | None
    ) -> Listing:
        """Return a page of the selected entries, after a key. ``listing``: all entries of the namespace."""
        entries = await self._all_described(listing.entries)
        page = await page_of(selection, within(entries, selection.namespace, after), revision, limit)
        return Listing(
            entries=page.entries,
            revision=page.revision,
            continue_token=page.continue_token,
            remaining=page.remaining,
            erased=listing.erased,
        )

    async def select(self, entries: Sequence[Entry], selection: Selection) -> Sequence[Entry]:
        return await selection.select(await self._all_described(entries))

    def matcher(self, selection: Selection) -> Callable[[Entry], bool] | None:
        """Return the predicate of ``Selection.matcher``, over entries as views and log describe them."""
        matches = selection.matcher()
        return None if matches is None else lambda entry: matches(self._described(entry))

    async def _all_described(self, entries: Sequence[Entry]) -> list[Entry]:
        described, pauses = [], Pauses()
        for entry in entries:
            described.append(self._described(entry))
            await pauses.pause()
        return described

    def _described(self, entry: Entry) -> Entry:
        if entry.erased:
            return entry
        obj = entry.object()
        fields = {"metadata.name": entry.key.name, "metadata.namespace": entry.key.namespace}
        fields |= {name: get(obj) for name, get in self._getters}
        return structs.replace(entry, labels=obj["metadata"].get("labels") or NOTHING, fields=fields)
