"""Get, list and watch of revisions: changes read from the logs as objects (api/history/revisions.py).

The log evaluates selectors of a change's own columns. Selectors of the object (labels, changed fields, reasons) are
evaluated here, chunk by chunk. A page ends after MAX_SCANNED changes or PAGE_BYTES, full or not, with a continue token,
so that no request reads the whole log.

A question is answered from each log that may have changes of it (``shares``), in one order of times. A selection by a
revision means that revision in its own log, and its commit time in the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import trio
from msgspec import structs

from kubechronicle.actors.allocation.ports import NODE_PORTS
from kubechronicle.actors.history.change_cursor import ChangeCursor, with_position
from kubechronicle.actors.history.change_records import plain_entry
from kubechronicle.actors.history.log_changes import CHUNK, LogChanges, Merge, Merged, Share, position_of
from kubechronicle.actors.history.other_logs import may_be_elsewhere, recorded_logs
from kubechronicle.actors.history.revision_selection import revisions_named
from kubechronicle.actors.history.tree import EVENTS
from kubechronicle.actors.history.verdicts import with_verdicts
from kubechronicle.actors.reading.reads import EXPIRED_LIST, Listing, Reads, Selection, Watching
from kubechronicle.api.admission.replays import ReplayOutcome
from kubechronicle.api.errors import status
from kubechronicle.api.history.cells import BY_TIME, FORMER, NOISY_RESOURCES
from kubechronicle.api.meta.list_options import Continue, decode_continue, encode_continue
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.queries.changes import ChangeQuery

# The same as CHUNK if the objects are passed on as they are, and not decoded.
PLAIN_CHUNK: Final = 2000
# Page size of a list without a limit.
DEFAULT_LIMIT: Final = 500
# Bytes of a page, after which it ends even if it has fewer changes than its limit.
PAGE_BYTES: Final = 8 * 1024 * 1024
# Entries with plain contents that are made before other tasks run: some 2 ms.
PAUSE_EVERY: Final = 256
# Changes one request scans before it answers with an incomplete page.
MAX_SCANNED: Final = 20_000
# The same if policies judge the changes.
MAX_JUDGED: Final = 5_000

MakeLogChanges = Callable[[Reads], Awaitable[LogChanges]]
"""Return the changes of one log."""


def _ignore(warning: str) -> None:
    """Take a warning that nobody reads."""


class ChangeReads:
    """An ObjectReads of revisions. ``reads``: of all logs. ``make``: returns the changes of one of them.

    ``warn``: called with the client's warnings. ``oldest_first``: the order of lists.
    """

    def __init__(
        self,
        reads: Reads,
        make: MakeLogChanges,
        warn: Callable[[str], None] = _ignore,
        *,
        oldest_first: bool = False,
    ) -> None:
        self._reads = reads
        self._make = make
        self._warn = warn
        self._oldest_first = oldest_first

    # -- logs ---------------------------------------------------------------------------------------------------------

    async def shares(self, rt: ResourceType, selection: Selection) -> Sequence[Share]:
        """Return the shares of the logs that may have changes of a selection, the main one first. StatusError 400."""
        logs, named = self._reads.logs, revisions_named(selection)
        one = next((number for field, number in named if field == "metadata.name"), None)
        if len(logs) > 1 and one is not None:
            logs = [self._reads.of_revision(one)]
        shares = [await self._share(logs[0], rt, selection)]
        query = shares[0].selected.query
        if any(not each.resources for each in recorded_logs(self._reads)) and _may_have_noise(query):
            self._warn(FORMER)
        if len(logs) > 1 and _may_be_elsewhere(query):
            shares += [await self._share(log, rt, selection) for log in logs[1:]]
            for number in sorted({number for _, number in named if number > 1}):
                self._warn(BY_TIME.format(revision=number))
        return shares

    async def _share(self, log: Reads, rt: ResourceType, selection: Selection) -> Share:
        changes = await self._make(log)
        return Share(changes, await changes.select(rt, selection))

    async def main(self, rt: ResourceType, selection: Selection) -> Share:
        """Return the share of the main log, for questions that it answers alone."""
        return await self._share(self._reads, rt, selection)

    async def of_revision(self, number: int) -> LogChanges:
        """Return the changes of the log that holds a revision."""
        return await self._make(self._reads.of_revision(number))

    async def events(self, rt: ResourceType, selection: Selection) -> Share | None:
        """Return the share of the log of Events; None: it is the main one."""
        log = self._reads.of(EVENTS)
        return None if log is self._reads else await self._share(log, rt, selection)

    # -- the verbs ----------------------------------------------------------------------------------------------------

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        number = _revision_named(name)
        if number is None:
            return None
        changes = await self._make(self._reads.of_revision(number))
        last = await changes.newest(revision)
        if number < await changes.begins(namespace):
            return None
        query = ChangeQuery(
            after=number - 1,
            until=min(number, last),
            namespaced=rt.namespaced,
            namespace=namespace,
            not_resources=(NODE_PORTS,),
        )
        found = await changes.log.changes(query, limit=1)
        entry = await changes.entry(*found[0], content="full") if found else None
        await changes.values.finish()
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
        """List revisions, newest first. ``revision``: as of any list; with ``exact`` the newest revision returned."""
        shares = await self.shares(rt, selection)
        changes = shares[0].changes
        pages = _Pages(shares, namespaced=rt.namespaced and not selection.namespace)
        if continue_token:
            pages.go_on(continue_token)
        else:
            for share in shares:
                pages.last[share] = await share.changes.newest(revision)
                if exact and revision:
                    asked = await share.changes.bounds.reached(revision)
                    pages.last[share] = min(pages.last[share], asked)
        options: dict[str, Any] = {
            "newest_first": not self._oldest_first,
            "with_replaced": changes.content != "after" or shares[0].selected.needs_objects,
            "brief": changes.form.brief and changes.is_plain(shares[0].selected),
        }
        if changes.verdicts is not None and not shares[0].query.resources:
            options["resources"] = changes.verdicts.resources()
        for share in shares:
            after, until = pages.bounds(share, oldest_first=self._oldest_first)
            share.narrow(after=after, until=until, **options)
            share.ended |= not options.get("resources", True)
        entries, more = await self._page(Merge(shares), limit or DEFAULT_LIMIT)
        await changes.values.finish()
        return Listing(entries=entries, revision=pages.position, continue_token=pages.token() if more else "")

    async def watch(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        revision: int | None,
        initial: bool | None = None,
        bookmarks: bool = False,
    ) -> Watching:
        """Watch changes after a revision.

        Without one (or "0") the newest page comes first, in ascending order, as kubectl get --watch shows it.
        """
        shares = await self.shares(rt, selection)
        starts = [await share.changes.newest(revision) for share in shares]
        last = position_of({share.changes: start for share, start in zip(shares, starts, strict=True)})
        send_initial = initial if initial is not None else not revision
        entries: Sequence[Entry] = ()
        if send_initial:
            for share, start in zip(shares, starts, strict=True):
                share.narrow(until=start, newest_first=True)
            newest_page, _ = await self._page(Merge(shares), DEFAULT_LIMIT)
            entries = newest_page[::-1]
            if len(shares) > 1 and entries:
                entries = [*entries[:-1], with_position(entries[-1], last)]
        elif revision:
            starts = [await share.changes.bounds.reached(revision) for share in shares]
        await shares[0].changes.values.finish()
        return Watching(entries, last, bool(initial) and bookmarks, ChangeCursor(shares, starts))

    # -- reading ------------------------------------------------------------------------------------------------------

    async def _page(self, merge: Merge, limit: int) -> tuple[Sequence[Entry], bool]:
        """Return at most ``limit`` matching entries, and whether there may be more after ``scanned`` of the shares."""
        entries: list[Entry] = []
        scanned, held = 0, 0
        changes, selected = merge.shares[0].changes, merge.shares[0].selected
        judges, is_plain = changes.verdicts is not None, changes.is_plain(selected)
        most = PLAIN_CHUNK if is_plain else CHUNK
        while True:
            size = CHUNK if selected.needs_objects or judges else min(most, limit - len(entries) + 1)
            found = await merge.take(size)
            judged = await _judged(found) if judges else None
            for place, (share, record, before) in enumerate(found):
                if len(entries) == limit or held >= PAGE_BYTES:
                    return entries, True
                share.scanned, scanned = record, scanned + 1
                if judged is not None and not judged[place]:
                    continue
                entry = None
                if is_plain:
                    if not scanned % PAUSE_EVERY:
                        await trio.lowlevel.checkpoint()
                    scope = record.key[:2]
                    first = share.first_readable.get(scope)
                    if first is None:
                        first = share.first_readable[scope] = await share.changes.readable(*scope, "")
                    if record.revision >= first:  # the client may read all objects of the resource in the namespace
                        entry = plain_entry(record, before, changes.form, share.changes.reads.name)
                if entry is None:
                    entry = await share.changes.matching(share.selected, record, before)
                if entry is not None and judged is not None:
                    entry = structs.replace(entry, json=with_verdicts(entry.json, judged[place]))
                if entry is not None:
                    entries.append(entry)
                    held += len(entry.json)
            if merge.ended:
                return entries, False
            if scanned >= (MAX_JUDGED if judges else MAX_SCANNED):
                return entries, True


async def _judged(found: Sequence[Merged]) -> Sequence[Sequence[ReplayOutcome]]:
    """Return the verdicts on changes."""
    judged: list[Sequence[ReplayOutcome]] = [()] * len(found)
    places: dict[LogChanges, list[int]] = {}
    for place, (share, _, _) in enumerate(found):
        places.setdefault(share.changes, []).append(place)
    for changes, own in places.items():
        for place, outcomes in zip(own, await changes.judged([found[place][1:] for place in own]), strict=True):
            judged[place] = outcomes
    return judged


class _Pages:
    """The pages of one list: where each log ends for them (``last``), and how far it has been read (``_reached``).

    The continue token has both. With one log, it is the usual one: {"rv": last, "start": "namespace/reached"}. With
    several logs, its name is ``LAST-REACHED.LAST-REACHED``, a pair for each, 0 before its first change.
    """

    def __init__(self, shares: Sequence[Share], *, namespaced: bool) -> None:
        self._shares = shares
        self._namespaced = namespaced
        self.last: dict[Share, int] = {}
        self._reached: dict[Share, int] = dict.fromkeys(shares, 0)

    @property
    def position(self) -> int:
        return position_of({share.changes: last for share, last in self.last.items()})

    def go_on(self, text: str) -> None:
        """Go on after the page that had this token. StatusError 400; 410: it is of other logs."""
        token = decode_continue(text, namespaced=self._namespaced)
        pairs = [token.after[1]] if len(self._shares) == 1 else token.after[1].split(".")
        if token.revision < 0 or len(pairs) != len(self._shares):
            raise status.expired(EXPIRED_LIST)
        for share, pair in zip(self._shares, pairs, strict=True):
            last, _, reached = pair.rpartition("-")
            numbers = [_revision_named(each) for each in (last or str(token.revision), reached)]
            if None in numbers or (not numbers[1] and len(pairs) == 1):
                raise status.expired(EXPIRED_LIST)
            self.last[share], self._reached[share] = (number or 0 for number in numbers)

    def bounds(self, share: Share, *, oldest_first: bool) -> tuple[int, int]:
        """Return the revision after which the next page begins, and the last one that it may have."""
        reached, last = self._reached[share], self.last[share]
        if oldest_first:
            return reached, last
        return 0, min(last, reached - 1) if reached else last

    def token(self) -> str:
        """Return the token of the next page."""
        scanned = [share.scanned for share in self._shares if share.scanned is not None]
        namespace = scanned[0].key.namespace if self._namespaced else ""
        main = self._shares[0]
        if len(self._shares) == 1:
            return encode_continue(Continue(self.last[main], (namespace, str(scanned[0].revision))))
        pairs = [
            f"{self.last[share]}-{self._reached[share] if share.scanned is None else share.scanned.revision}"
            for share in self._shares
        ]
        return encode_continue(Continue(self.last[main], (namespace, ".".join(pairs))))


def _revision_named(name: str) -> int | None:
    """Return the revision whose object has this name, None if no revision can have it."""
    if not name.isascii() or not name.isdigit() or len(name) > 18 or str(int(name)) != name:
        return None
    return int(name)


def _may_have_noise(query: ChangeQuery) -> bool:
    """Tell whether a selection may be about Events or Leases, which may have been in another database."""
    meant = set(query.resources or NOISY_RESOURCES) & set(NOISY_RESOURCES)
    return query.namespaced is not False and bool(meant - set(query.not_resources))


def _may_be_elsewhere(query: ChangeQuery) -> bool:
    """Tell whether other logs than the main one are asked about a selection.

    A reader that leaves out Events and Leases, and names no kind, is not shown either what other logs record about
    themselves.
    """
    resources = query.resources or NOISY_RESOURCES
    return any(may_be_elsewhere(each) and each not in query.not_resources for each in resources)
