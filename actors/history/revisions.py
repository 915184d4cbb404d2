"""Get, list and watch of revisions: changes read from the log as objects (api/history/revisions.py).

The log evaluates selectors of a change's own columns. Selectors of the object (labels, changed fields, reasons) are
evaluated here, chunk by chunk. A page ends after MAX_SCANNED changes or PAGE_BYTES, full or not, with a continue token,
so that no request reads the whole log.

A client that may read revisions learns that an object changed. The contents of the change also require permission to
read the object (``readable``).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import trio
from msgspec import structs

from kubechronicle.actors.allocation.ports import NODE_PORTS
from kubechronicle.actors.history.change_records import WHOLE, PlainForm
from kubechronicle.actors.history.revision_entries import SecretValues, entry_of, matches, plain_entry
from kubechronicle.actors.history.revision_selection import DeletedTypes, RevisionSelection, select_revisions
from kubechronicle.actors.history.tags import tagged_revisions
from kubechronicle.actors.history.verdicts import Pair, Verdicts, with_verdicts
from kubechronicle.actors.large_work import Turn
from kubechronicle.actors.reading.reads import EXPIRED_LIST, Listing, Reads, Selection, Watching
from kubechronicle.api.admission.replays import Outcome
from kubechronicle.api.errors import status
from kubechronicle.api.history.revisions import PLAIN, Content
from kubechronicle.api.meta.paging import Continue, decode_continue, encode_continue
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.errors import BeforeHistory, FutureMoment
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.queries.chunks import pair_size
from kubechronicle.eventlog.records import Moment, Operation, Record

# Changes read from the log at once. With the objects they replaced, these are usually a few megabytes.
CHUNK: Final = 500
# The same if the objects are passed on as they are, and not decoded.
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

NEVER: Final = 2**63
"""A revision after all others."""

Readable = Callable[[str, str, str], Awaitable[int]]
"""Return the first revision at which the client may read an object, NEVER if it may not: (storage resource, namespace,
name)."""


async def _from_the_beginning(_: str) -> int:
    return 0


class ChangeReads:
    """An ObjectReads of revisions.

    ``begins``: returns the first revision of a namespace that the client may list.
    ``at``: the newest revision to return; None: the current one.
    ``content``: how much of the objects a list returns. A get returns all of it.
    ``form``: the form of lists with plain contents.
    ``verdicts``: judges the changes; a list has only those that a policy would have refused.
    ``values``: the form of the values of Secrets; masked with a random key by default.
    ``turn``: the request's share in the large work; differences of large objects are computed there.
    """

    def __init__(
        self,
        log: RevisionLog,
        reads: Reads,
        registry: Registry,
        deleted: DeletedTypes,
        *,
        readable: Readable,
        turn: Turn,
        begins: Callable[[str], Awaitable[int]] = _from_the_beginning,
        at: Moment | None = None,
        content: Content = "",
        form: PlainForm = WHOLE,
        oldest_first: bool = False,
        verdicts: Verdicts | None = None,
        values: SecretValues | None = None,
    ) -> None:
        self._log = log
        self._reads = reads
        self._registry = registry
        self._deleted = deleted
        self._first_readable = readable
        self._begins = begins
        self.turn = turn
        self._at = at
        self._content = content
        self._form = form
        self._oldest_first = oldest_first
        self._verdicts = verdicts
        self._values = values or SecretValues()

    @property
    def log(self) -> RevisionLog:
        return self._log

    # -- the verbs ----------------------------------------------------------------------------------------------------

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        number = _revision_named(name)
        if number is None:
            return None
        last = await self.newest(revision)
        if namespace and number < await self._begins(namespace):
            return None
        query = ChangeQuery(
            after=number - 1,
            until=min(number, last),
            namespaced=rt.namespaced,
            namespace=namespace,
            not_resources=(NODE_PORTS,),
        )
        changes = await self._log.changes(query, limit=1)
        entry = await self._entry(*changes[0], content="full") if changes else None
        await self._values.finish()
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
        last = await self.newest(revision)
        if exact and revision:
            last = min(last, revision)
        after = 0
        if continue_token:
            token = decode_continue(continue_token, namespaced=rt.namespaced and not selection.namespace)
            named = _revision_named(token.after[1])
            if not named or token.revision < 0:
                raise status.expired(EXPIRED_LIST)
            last, after = token.revision, named
        selected = await self.select(rt, selection)
        query = replace(
            selected.query,
            until=min(selected.query.until, last),
            newest_first=not self._oldest_first,
            with_replaced=self._content != "after" or selected.needs_objects,
            brief=self._form.brief and self._is_plain(selected),
        )
        if after and self._oldest_first:
            query = replace(query, after=max(query.after, after))
        elif after:
            query = replace(query, until=min(query.until, after - 1))
        limit = limit or DEFAULT_LIMIT
        if self._verdicts is not None and not query.resources:
            query = replace(query, resources=self._verdicts.resources())
            selected = replace(selected, is_empty=selected.is_empty or not query.resources)
        entries, last_scanned = ([], None) if selected.is_empty else await self._page(selected, query, limit)
        token_text = ""
        if last_scanned is not None:
            namespace = "" if selection.namespace or not rt.namespaced else last_scanned.key.namespace
            token_text = encode_continue(Continue(last, (namespace, str(last_scanned.revision))))
        await self._values.finish()
        return Listing(entries=entries, revision=last, continue_token=token_text)

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
        last = await self.newest(revision)
        selected = await self.select(rt, selection)
        send_initial = initial if initial is not None else not revision
        entries: Sequence[Entry] = ()
        if send_initial and not selected.is_empty:
            query = replace(selected.query, until=min(selected.query.until, last), newest_first=True)
            newest_page, _ = await self._page(selected, query, DEFAULT_LIMIT)
            entries = newest_page[::-1]
        start = last if send_initial or not revision else revision
        cursor = ChangeCursor(self, selected, start)
        await self._values.finish()
        return Watching(entries, last, bool(initial) and bookmarks, cursor)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def begins(self, namespace: str) -> int:
        """Return the first revision of a namespace that the client may list; 0: it may list all. "": no namespace."""
        return await self._begins(namespace) if namespace else 0

    async def select(self, rt: ResourceType, selection: Selection) -> RevisionSelection:
        """Split a list's selectors into a query of the log and the rest. StatusError 400."""
        tagged = tagged_revisions(self._reads, self._registry)
        found = await select_revisions(rt, selection, self._registry, self._revision_at, self._deleted, tagged)
        first = await self.begins(selection.namespace)
        if first <= found.query.after + 1:
            return found
        query = replace(found.query, after=first - 1)
        return replace(found, query=query, is_empty=found.is_empty or query.after >= query.until)

    async def _revision_at(self, when: datetime | timedelta) -> int:
        """Return the newest revision at a time: 0 before the history, the current revision for the future."""
        try:
            return (await self._log.revision_at(when)).revision
        except BeforeHistory:
            return 0
        except FutureMoment:
            return await self.newest(None)

    async def newest(self, revision: int | None) -> int:
        """Return the newest revision to answer with."""
        if self._at is not None:
            return self._at.revision
        if revision is None:
            return await self._reads.wait_consistent()
        await self._reads.wait_not_older(revision)
        return self._reads.applied

    async def _page(
        self, selected: RevisionSelection, query: ChangeQuery, limit: int
    ) -> tuple[Sequence[Entry], Record | None]:
        """Return at most ``limit`` matching entries, and the last record scanned if there may be more."""
        entries: list[Entry] = []
        scanned, held, last = 0, 0, None
        judges, is_plain = self._verdicts is not None, self._is_plain(selected)
        scopes: dict[tuple[str, ...], int] = {}
        most = PLAIN_CHUNK if is_plain else CHUNK
        while True:
            size = CHUNK if selected.needs_objects or judges else min(most, limit - len(entries) + 1)
            chunk = await self._log.changes(query, limit=size)
            judged = await self._judged(chunk)
            for place, (record, before) in enumerate(chunk):
                if len(entries) == limit or held >= PAGE_BYTES:
                    return entries, last
                last, scanned = record, scanned + 1
                if judged is not None and not judged[place]:
                    continue
                if is_plain:
                    if not scanned % PAUSE_EVERY:
                        await trio.lowlevel.checkpoint()
                    scope = record.key[:2]
                    first = scopes.get(scope)
                    if first is None:
                        first = scopes[scope] = await self._first_readable(*scope, "")
                    if record.revision >= first:  # the client may read all objects of the resource in the namespace
                        entries.append(plain_entry(record, before, self._form))
                        held += len(entries[-1].json)
                        continue
                entry = await self._matching(selected, record, before)
                if entry is not None and judged is not None:
                    entry = structs.replace(entry, json=with_verdicts(entry.json, judged[place]))
                if entry is not None:
                    entries.append(entry)
                    held += len(entry.json)
            if chunk.is_last(size):
                return entries, None
            if scanned >= (MAX_JUDGED if judges else MAX_SCANNED):
                return entries, last
            assert last is not None
            if query.newest_first:
                query = replace(query, until=last.revision - 1)
            else:
                query = replace(query, after=last.revision)

    async def _judged(self, chunk: Sequence[Pair]) -> Sequence[Sequence[Outcome]] | None:
        """Return the verdicts on changes, none for those that the client may not read; None: nothing is judged."""
        if self._verdicts is None:
            return None
        readable = [await self.may_read(record) for record, _ in chunk]
        found = iter(await self._verdicts.of([change for change, seen in zip(chunk, readable, strict=True) if seen]))
        return [next(found) if seen else () for seen in readable]

    async def after(self, selected: RevisionSelection, revision: int) -> tuple[Sequence[tuple[Record, Entry]], int]:
        """Return the matching changes after a revision, oldest first, and the last revision scanned."""
        applied = self._reads.applied
        query = replace(
            selected.query,
            after=max(selected.query.after, revision),
            until=min(selected.query.until, applied),
            newest_first=False,
        )
        if selected.is_empty:
            return [], applied
        chunk = await self._log.changes(query, limit=CHUNK)
        matching = [(record, await self._matching(selected, record, before)) for record, before in chunk]
        await self._values.finish()
        reached = applied if chunk.is_last(CHUNK) else chunk[-1][0].revision
        return [(record, entry) for record, entry in matching if entry is not None], reached

    async def wait_after(self, revision: int) -> None:
        """Return when this replica has applied a newer revision."""
        await self._reads.wait_newer(revision)

    async def _matching(self, selected: RevisionSelection, record: Record, before: Record | None) -> Entry | None:
        """Return the revision if its object matches the selectors."""
        if not selected.needs_objects:
            return await self._entry(record, before, content=self._content)
        if not await self.may_read(record):
            return None  # selectors must not reveal labels and fields that the client may not read
        size = pair_size((record, before))
        await self.turn.begin(size)
        if not await self.turn.run(size, partial(matches, selected, record, before)):
            return None
        return await self._entry(record, before, content=self._content)

    async def may_read(self, record: Record) -> bool:
        """Tell whether the client may read the object of a change."""
        return record.revision >= await self._first_readable(*record.key)

    def _is_plain(self, selected: RevisionSelection) -> bool:
        """Tell whether objects are passed on as the log holds them: nothing decodes them."""
        return self._content in PLAIN and not selected.needs_objects and self._verdicts is None

    async def _entry(self, record: Record, before: Record | None, *, content: Content) -> Entry:
        """Return the revision as an Entry, to be listed and watched like any object."""
        readable = await self.may_read(record)
        size = pair_size((record, before))
        await self.turn.begin(size)
        make = partial(entry_of, record, before, content, self._values, self._form, readable=readable)
        return await self.turn.run(size, make)


def _revision_named(name: str) -> int | None:
    """Return the revision whose object has this name, None if no revision can have it."""
    if not name.isascii() or not name.isdigit() or len(name) > 18 or str(int(name)) != name:
        return None
    return int(name)


class ChangeCursor:
    """A watcher's position among the changes (eventlog.watching.cursors.Cursor)."""

    def __init__(self, reads: ChangeReads, selected: RevisionSelection, after: int) -> None:
        self._reads = reads
        self._selected = selected
        self._revision = after
        self._ended = False
        self._waiting = trio.CancelScope()

    @property
    def revision(self) -> int:
        return self._revision

    async def next_batch(self, deadline: float | None = None) -> list[Event]:
        """Return the next events, as any cursor. Each watcher has queries of its own: there are few of them."""
        limit = math.inf if deadline is None else deadline
        while not self._ended:
            with trio.CancelScope(deadline=limit) as self._waiting:
                await self._reads.wait_after(self._revision)
                try:
                    changes, self._revision = await self._reads.after(self._selected, self._revision)
                finally:
                    self._reads.turn.pause()  # a watch has a place only while it reads
                if changes:
                    return [
                        Event(record.revision, Operation.CREATE, entry, None, record.committed_at)
                        for record, entry in changes
                    ]
            if self._waiting.cancelled_caught:
                return []
        await trio.lowlevel.checkpoint()
        return []

    def end(self) -> None:
        self._ended = True
        self._waiting.cancel()
