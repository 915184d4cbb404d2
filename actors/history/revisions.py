"""Get, list and watch of revisions: the changes themselves, read from the log as objects (api/history/revisions.py).

What a selector asks of a change's own columns the log answers; what it asks of the object (labels, changed fields) is
looked at here, in chunks. A page that has looked at MAX_LOOKED_AT changes ends there, also if it is not full, and says
how to go on: no request reads the log from end to end.

Who may read revisions there is told that something changed; what changed only who may read the object (``readable``).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import orjson
import trio

from kubechronicle.actors.allocation.ports import NODE_PORTS
from kubechronicle.actors.reading.reads import EXPIRED_LIST, Listing, Reads, Selection, Watching
from kubechronicle.api.errors import status
from kubechronicle.api.history import revisions
from kubechronicle.api.history.moments import parse_moment
from kubechronicle.api.history.revisions import Content
from kubechronicle.api.meta.paging import Continue, decode_continue, encode_continue
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.selectors.field_selectors import FieldTerm
from kubechronicle.api.selectors.revision_fields import BOUNDS, KIND_FIELDS, TEXT_FIELDS
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.errors import BeforeHistory, FutureMoment
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.changes import ChangeQuery, Text
from kubechronicle.eventlog.records import Key, Moment, Operation, Record, Who

# Changes read from the log at once: with what they replaced, usually a few megabytes.
CHUNK: Final = 500
# Of a list without a limit: nobody wants a million at once.
DEFAULT_LIMIT: Final = 500
# Changes one request looks at before it answers with what it has.
MAX_LOOKED_AT: Final = 20_000

# Whether the one who asks may read an object: (storage resource, namespace, name).
Readable = Callable[[str, str, str], Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A selection of revisions. ``fields``: what the object's change must concern, and what it must not."""

    query: ChangeQuery
    selection: Selection
    fields: tuple[FieldTerm, ...] = ()
    nothing: bool = False

    @property
    def looks_inside(self) -> bool:
        return self.selection.labels is not None or bool(self.fields)


class ChangeReads:
    """An ObjectReads of revisions. ``at``: the newest that is told, None for all there are. ``content``: how much of
    the objects lists tell; a get tells all."""

    def __init__(
        self,
        log: RevisionLog,
        reads: Reads,
        registry: Registry,
        *,
        readable: Readable,
        at: Moment | None = None,
        content: Content = "",
        oldest_first: bool = False,
    ) -> None:
        self._log = log
        self._reads = reads
        self._registry = registry
        self._readable = readable
        self._at = at
        self._content = content
        self._oldest_first = oldest_first

    # -- the verbs ----------------------------------------------------------------------------------------------------

    async def get(self, rt: ResourceType, namespace: str, name: str, *, revision: int | None = None) -> Entry | None:
        if not name.isascii() or not name.isdigit() or len(name) > 18 or str(int(name)) != name:
            return None
        number, last = int(name), await self.newest(revision)
        query = ChangeQuery(
            after=number - 1,
            until=min(number, last),
            namespaced=rt.namespaced,
            namespace=namespace,
            not_resources=(NODE_PORTS,),
        )
        found = await self._log.changes(query, limit=1)
        return await self._entry(*found[0], content="full") if found else None

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
        """In the order of revisions, the newest first. ``revision``: as of any list; of ``exact`` the newest told."""
        last = await self.newest(revision)
        if exact and revision:
            last = min(last, revision)
        after = 0
        if continue_token:
            token = decode_continue(continue_token, namespaced=rt.namespaced and not selection.namespace)
            if not token.after[1].isdigit() or token.revision < 0:
                raise status.expired(EXPIRED_LIST)
            last, after = token.revision, int(token.after[1])
        asked = await self.asked(rt, selection)
        query = replace(asked.query, until=min(asked.query.until, last), newest_first=not self._oldest_first)
        if after and self._oldest_first:
            query = replace(query, after=max(query.after, after))
        elif after:
            query = replace(query, until=min(query.until, after - 1))
        limit = limit or DEFAULT_LIMIT
        entries, going_on = ([], None) if asked.nothing else await self._page(asked, query, limit)
        token_text = ""
        if going_on is not None:
            where = ("" if selection.namespace or not rt.namespaced else going_on.key.namespace, str(going_on.revision))
            token_text = encode_continue(Continue(last, where))
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
        """Changes after a revision as they come; without one (or "0") the newest page first, oldest of it first, as
        kubectl get --watch shows it."""
        last = await self.newest(revision)
        asked = await self.asked(rt, selection)
        send_initial = initial if initial is not None else not revision
        entries: Sequence[Entry] = ()
        if send_initial and not asked.nothing:
            query = replace(asked.query, until=min(asked.query.until, last), newest_first=True)
            found, _ = await self._page(asked, query, DEFAULT_LIMIT)
            entries = found[::-1]
        start = last if send_initial or not revision else revision
        cursor = ChangeCursor(self, asked, start)
        return Watching(entries, last, send_initial and bookmarks and initial is True, cursor)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def newest(self, revision: int | None) -> int:
        """Up to which revision is told."""
        if self._at is not None:
            return self._at.revision
        if revision is None:
            return await self._reads.wait_consistent()
        await self._reads.wait_not_older(revision)
        return self._reads.applied

    async def _page(self, asked: Asked, query: ChangeQuery, limit: int) -> tuple[Sequence[Entry], Record | None]:
        """At most ``limit`` that match, and the last one looked at if there may be more."""
        entries: list[Entry] = []
        looked_at, last = 0, None
        size = CHUNK if asked.looks_inside else min(CHUNK, limit + 1)
        while True:
            chunk = await self._log.changes(query, limit=size)
            for record, before in chunk:
                if len(entries) == limit:
                    return entries, last
                last, looked_at = record, looked_at + 1
                entry = await self.matching(asked, record, before)
                if entry is not None:
                    entries.append(entry)
            if len(chunk) < size:
                return entries, None
            if looked_at >= MAX_LOOKED_AT:
                return entries, last
            assert last is not None
            if query.newest_first:
                query = replace(query, until=last.revision - 1)
            else:
                query = replace(query, after=last.revision)

    async def after(self, asked: Asked, revision: int) -> tuple[Sequence[tuple[Record, Entry]], int]:
        """What has happened since that matches, oldest first, and up to which revision that is."""
        applied = self._reads.applied
        query = replace(
            asked.query,
            after=max(asked.query.after, revision),
            until=min(asked.query.until, applied),
            newest_first=False,
        )
        if asked.nothing:
            return [], applied
        chunk = await self._log.changes(query, limit=CHUNK)
        matching = [(record, await self.matching(asked, record, before)) for record, before in chunk]
        reached = chunk[-1][0].revision if len(chunk) == CHUNK else applied
        return [(record, entry) for record, entry in matching if entry is not None], reached

    async def wait_after(self, revision: int) -> None:
        """Return when this replica knows of a newer revision."""
        await self._reads.wait_newer(revision)

    async def matching(self, asked: Asked, record: Record, before: Record | None) -> Entry | None:
        """The revision, if what it says of the object matches."""
        if not asked.looks_inside:
            return await self._entry(record, before, content=self._content)
        if not await self._readable(*record.key):
            return None  # whoever may not see the labels and fields must not find out by asking for them
        entry = await self._entry(record, before, content=self._content)
        labels = asked.selection.labels
        if labels is not None and not labels.matches(entry.labels):
            return None
        if asked.fields:
            revision = entry.object()
            if any(revisions.concerns_field(revision, term.value) is not term.equal for term in asked.fields):
                return None
        return entry

    async def _entry(self, record: Record, before: Record | None, *, content: Content) -> Entry:
        """The revision as an Entry, so that it is answered and watched as any object."""
        readable = await self._readable(*record.key)
        change = change_of(record, before)
        revision = revisions.revision_object(change, content=content, readable=readable)
        kind = "revisions" if record.key.namespace else "clusterrevisions"
        return Entry(
            Key(f"{kind}.{revisions.GROUP}", record.key.namespace, str(record.revision)),
            "",
            record.revision,
            record.revision,
            1,
            orjson.dumps(revision),
            change.labels if readable else {},
            {},
        )

    # -- selecting ----------------------------------------------------------------------------------------------------

    async def asked(self, rt: ResourceType, selection: Selection) -> Asked:
        """What the selectors ask, told apart by who answers it. StatusError 400."""
        found = _Terms()
        for term in selection.fields.terms if selection.fields is not None else ():
            if term.field in BOUNDS or term.field == "metadata.name":
                await self._bound(found, term)
            else:
                found.take(term, self._registry)
        query = ChangeQuery(
            after=found.after,
            until=found.until,
            namespaced=rt.namespaced,
            namespace=selection.namespace,
            resources=tuple(sorted(found.resources)) if found.resources is not None else (),
            not_resources=tuple(sorted({NODE_PORTS, *found.not_resources})),
            operations=tuple(sorted(found.operations)) if len(found.operations) < len(Operation) else (),
            texts=tuple(found.texts),
        )
        nothing = found.resources == frozenset() or not found.operations or found.after >= found.until
        return Asked(query=query, selection=selection, fields=tuple(found.fields), nothing=nothing)

    async def _bound(self, found: _Terms, term: FieldTerm) -> None:
        """Narrow the revisions looked at. StatusError 400."""
        if not term.equal:
            raise status.bad_request(f"{term.field}!={term.value}: {term.field} takes = only")
        name = term.field
        if name.startswith("time."):
            try:
                when = parse_moment(term.value)
            except ValueError as error:
                raise status.bad_request(f"{name}: {error}") from None
            moment = await self._moment(when)
            if name == "time.from" and not isinstance(when, int):
                moment += 1
            found.narrow(moment, math.inf) if name == "time.from" else found.narrow(0, moment)
            return
        if not term.value.isascii() or not term.value.isdigit() or len(term.value) > 18:
            raise status.bad_request(f"{name}={term.value}: must be a revision, such as 12345")
        number = int(term.value)
        found.narrow(0 if name == "revision.to" else number, math.inf if name == "revision.from" else number)

    async def _moment(self, when: int | datetime | timedelta) -> int:
        """The newest revision at a time; 0 before all that is kept, the newest there is for what is to come."""
        if isinstance(when, int):
            return when
        try:
            return (await self._log.revision_at(when)).revision
        except BeforeHistory:
            return 0
        except FutureMoment:
            return await self.newest(None)


class _Terms:
    """The terms of a field selector, gathered."""

    def __init__(self) -> None:
        self.after = 0
        self.until = 2**62
        self.resources: frozenset[str] | None = None
        self.not_resources: set[str] = set()
        self.operations: set[Operation] = set(Operation)
        self.texts: list[tuple[str, Text]] = []
        self.fields: list[FieldTerm] = []

    def narrow(self, first: float, last: float) -> None:
        self.after = max(self.after, int(first) - 1)
        self.until = self.until if last == math.inf else min(self.until, int(last))

    def take(self, term: FieldTerm, registry: Registry) -> None:
        """StatusError 400."""
        if term.field == "changed":
            self.fields.append(term)
        elif term.field == "operation":
            named = {operation for operation in Operation if operation.name.lower() == term.value.lower()}
            if not named:
                raise status.bad_request(f"operation={term.value}: must be Create, Update or Delete")
            self.operations &= named if term.equal else set(Operation) - named
        elif term.field in KIND_FIELDS:
            named_resources = revisions.resources_named(registry, term.field, term.value)
            if not term.equal:
                self.not_resources |= named_resources
            else:
                self.resources = named_resources if self.resources is None else self.resources & named_resources
        else:
            prefix = term.value.endswith("*")
            text = Text(value=term.value.removesuffix("*"), equal=term.equal, prefix=prefix)
            self.texts.append((TEXT_FIELDS[term.field], text))


class ChangeCursor:
    """One watcher's place among the changes (eventlog.cursors.Cursor)."""

    def __init__(self, reads: ChangeReads, asked: Asked, after: int) -> None:
        self._reads = reads
        self._asked = asked
        self._revision = after
        self._ended = False
        self._waiting = trio.CancelScope()

    @property
    def revision(self) -> int:
        return self._revision

    async def next_batch(self, deadline: float | None = None) -> list[Event]:
        """As of any cursor. What is told once is told to each watcher by a query of its own: they are few."""
        limit = math.inf if deadline is None else deadline
        while not self._ended:
            with trio.CancelScope(deadline=limit) as self._waiting:
                await self._reads.wait_after(self._revision)
                found, self._revision = await self._reads.after(self._asked, self._revision)
                if found:
                    return [
                        Event(record.revision, Operation.CREATE, entry, None, record.committed_at)
                        for record, entry in found
                    ]
            if self._waiting.cancelled_caught:
                return []
        await trio.lowlevel.checkpoint()
        return []

    def end(self) -> None:
        self._ended = True
        self._waiting.cancel()


def change_of(record: Record, before: Record | None) -> revisions.Change:
    """A record and the one it replaced, as plain values."""
    last = orjson.loads(record.body)
    gone = record.erased or record.operation is Operation.DELETE
    who = record.who or Who(user="")
    return revisions.Change(
        revision=record.revision,
        time=record.committed_at,
        operation=int(record.operation),
        resource=record.key.resource,
        namespace=record.key.namespace,
        name=record.key.name,
        uid=record.uid,
        version=record.version,
        previous_revision=record.previous_revision,
        who={
            "username": who.user,
            "uid": who.uid,
            "groups": list(who.groups),
            "extra": {name: list(values) for name, values in who.extra.items()},
            "impersonator": who.impersonator,
            "sourceAddress": who.source_address,
            "userAgent": who.user_agent,
            "fieldManager": who.field_manager,
        },
        request={"verb": who.verb, "uri": who.request_uri, "auditID": who.audit_id},
        before=orjson.loads(before.body) if before is not None and not before.erased else None,
        after=None if gone else last,
        last=last if gone else None,
        erased=record.erased,
        before_erased=before is not None and before.erased,
        labels=labels_of(last),
    )


def labels_of(obj: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = obj.get("metadata", {}).get("labels") or {}
    return labels
