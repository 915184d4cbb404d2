"""Get, list and watch as of a moment of the past, with the interface of Reads.

A request's resourceVersion against the moment's revision R:

    get, list     none, "0"         R
                  N                 R, which must not be older than N; with match Exact: N
    watch         none, "0"         the state at R, then the changes after R
                  N                 the changes after N

Answers carry the revisions of the past, so a client can continue from them: an informer lists at R and then receives
the later changes one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from kubechronicle.actors.pauses import Pauses
from kubechronicle.actors.reading.reads import Listing, Reads, Selection, Watching, parse_continue, too_old, watch_scope
from kubechronicle.actors.reading.selection import page_of, within
from kubechronicle.api.custom.served import getter, selectable_fields
from kubechronicle.api.errors import status
from kubechronicle.api.history.moments import written
from kubechronicle.api.meta.list_options import INCONSISTENT
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import NOTHING, Entry
from kubechronicle.eventlog.errors import Compacted, FutureRevision
from kubechronicle.eventlog.records import Moment
from kubechronicle.eventlog.views.replay import Replay

# -- past fields -------------------------------------------------------------------------------------------------------
#
# Selectable fields of custom resources in the past: those of the definition of the moment, with its defaults.
#
# Views and log describe objects by the present definition. So a selector of such fields reads all objects of the
# namespace as of the moment, and describes them anew.


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


class PastReads:
    """An ObjectReads of the past.

    ``until``: the last revision of a watch; None: it continues in the present.
    ``speed``: a watch's speed relative to the history; None: as fast as it is read.
    """

    def __init__(self, present: Reads, moment: Moment, *, until: int | None = None, speed: float | None = None) -> None:
        self._present = present
        self._moment = moment
        self._until = until
        self._speed = speed

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        at = self._at(revision)
        await self._present.wait_not_older(at)
        await self._check_kept(rt, at)
        entry = await self._present.past.get(rt.resource, namespace, name, at)
        if entry is not None and entry.erased:
            name_text = f'{rt.group_resource} "{name}"'
            raise status.gone(f"what {name_text} was at revision {at} was erased from history")
        return entry

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
        at, after = self._at(revision), None
        if continue_token:
            read_at, after = parse_continue(rt, selection, continue_token)
            at = at if read_at == INCONSISTENT else read_at
        else:
            at = revision if exact and revision else at
            await self._check_kept(rt, at)
        paging = bool(continue_token)
        if selects_by_definition(rt, selection):
            whole = Selection(namespace=selection.namespace)
            listing = await self._present.list_past(rt, whole, at, limit=0, after=None, paging=paging)
            return await PastFields(rt).page(listing, selection, at, limit, after)
        return await self._present.list_past(rt, selection, at, limit=limit, after=after, paging=paging)

    def _at(self, revision: int | None) -> int:
        """Return the moment's revision. StatusError 504: the request demands a later one."""
        if revision is not None and revision > self._moment.revision:
            raise status.too_large_resource_version(revision, self._moment.revision)
        return self._moment.revision

    async def _check_kept(self, rt: ResourceType, revision: int) -> None:
        """Raise StatusError 410 if this resource's history, kept shorter perhaps than others', begins later."""
        mark = self._present.views.compacted_for(rt.resource)
        if revision < mark:
            oldest = await self._moment_of(mark)
            since = f"{written(oldest.time)} (revision {mark})"
            raise status.expired(f"history of {rt.resource} starts later: the oldest moment is {since}")

    async def watch(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        revision: int | None,
        initial: bool | None = None,
        bookmarks: bool = False,
    ) -> Watching:
        send_initial = initial if initial is not None else not revision
        start = revision or self._moment.revision
        if send_initial:
            start = max(start, self._moment.revision)
        entries: Sequence[Entry] = ()
        fields = PastFields(rt) if selects_by_definition(rt, selection) else None
        if send_initial:
            await self._present.wait_not_older(start)
            listed = selection if fields is None else Selection(namespace=selection.namespace)
            try:
                entries = (await self._present.past.listing(rt, listed, start, limit=0, after=None)).entries
            except Compacted as error:
                raise too_old(error) from None
            if fields is not None:
                entries = await fields.select(entries, selection)
        since = self._moment.time
        if start != self._moment.revision and self._speed is not None:
            since = (await self._moment_of(start)).time
        cursor = Replay(
            self._present.views,
            rt.resource,
            after=start,
            since=since,
            until=self._until,
            speed=self._speed,
            **watch_scope(rt, selection),
        )
        ends_with_bookmark = bool(initial) and bookmarks
        matches = selection.matcher() if fields is None else fields.matcher(selection)
        return Watching(entries, start, ends_with_bookmark, cursor, matches)

    async def _moment_of(self, revision: int) -> Moment:
        try:
            return await self._present.past.moment(revision)
        except FutureRevision as error:
            raise status.too_large_resource_version(revision, error.current) from None
