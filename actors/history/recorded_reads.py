"""Lists of recorded reads, and of the periods in which they were recorded (api/history/reads.py)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import orjson

from kubechronicle.actors.reading.reads import EXPIRED_LIST, Listing, Reads, Selection
from kubechronicle.actors.reading.selection import ListsOnly
from kubechronicle.api.errors import status
from kubechronicle.api.history import reads as read_objects
from kubechronicle.api.history.moments import parse_moment
from kubechronicle.api.history.reads import RECORDINGS, Read
from kubechronicle.api.history.revisions import GROUP
from kubechronicle.api.meta.list_options import Continue, decode_continue, encode_continue
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors.field_selectors import FieldTerm
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.queries.reads import ReadQuery, ReadRecord, Recording
from kubechronicle.eventlog.records import Key, Moment

DEFAULT_LIMIT: Final = 500
MOST: Final = 5000
"""Reads of a page, and recordings of a list."""


class RecordedReads(ListsOnly):
    """An ObjectReads of recorded reads. ``at``: the moment up to which they are listed; None: all."""

    def __init__(self, reads: Reads, *, at: Moment | None = None) -> None:
        self._reads = reads
        self._at = at

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
        """List reads or recordings, newest first. ``revision``, ``exact``: they have no revision, and are ignored."""
        if selection.labels is not None:
            raise status.bad_request(f"{rt.plural} have no labels to select")
        applied = self._reads.applied
        if rt.plural == RECORDINGS:
            recordings = await self._reads.log.recorded.recordings(limit=MOST)
            return Listing(entries=[_recording_entry(each) for each in recordings], revision=applied, continue_token="")
        query = query_of(rt, selection, now=datetime.now(UTC))
        if self._at is not None:
            query = query._replace(until=min(self._at.time, query.until or self._at.time))
        if continue_token:
            query = query._replace(before=_decode(continue_token, rt, selection))
        limit = min(limit or DEFAULT_LIMIT, MOST)
        found = await self._reads.log.recorded.list(query, limit=limit + 1)
        page, token = found[:limit], ""
        if len(found) > limit:
            namespace = "" if selection.namespace or not rt.namespaced else page[-1].namespace
            token = encode_continue(Continue(applied, (namespace, _place(page[-1]))))
        return Listing(entries=[_read_entry(each) for each in page], revision=applied, continue_token=token)


def query_of(rt: ResourceType, selection: Selection, *, now: datetime) -> ReadQuery:
    """Return the query of a list's selectors. StatusError 400."""
    query = ReadQuery(namespaced=rt.namespaced, namespace=selection.namespace)
    for term in selection.fields.terms if selection.fields is not None else ():
        if not term.equal:
            raise status.bad_request(f"{term.field}!={term.value}: fields of reads take = only")
        query = _SETTERS[term.field](query, term, now)
    return query


Setter = Callable[[ReadQuery, FieldTerm, datetime], ReadQuery]


def _moment(term: FieldTerm, now: datetime) -> datetime:
    try:
        when = parse_moment(term.value, now=now)
    except ValueError as error:
        raise status.bad_request(f"{term.field}: {error}") from None
    if isinstance(when, int):
        raise status.bad_request(f"{term.field}={term.value}: must be a time or an age; reads have no revision")
    return now - when if isinstance(when, timedelta) else when


_SETTERS: Final[dict[str, Setter]] = {
    "metadata.namespace": lambda query, term, _: query._replace(namespace=term.value),
    "object.resource": lambda query, term, _: query._replace(resources=(term.value.lower(),)),
    "object.name": lambda query, term, _: query._replace(name=term.value),
    "who.username": lambda query, term, _: query._replace(user=term.value),
    "request.verb": lambda query, term, _: query._replace(verbs=(term.value,)),
    "time.from": lambda query, term, now: query._replace(since=_moment(term, now)),
    "time.to": lambda query, term, now: query._replace(until=_moment(term, now)),
}


def _place(read: ReadRecord) -> str:
    return f"{round(read.at * 1_000_000)}.{read.id}"


def _decode(token: str, rt: ResourceType, selection: Selection) -> tuple[datetime, int]:
    decoded = decode_continue(token, namespaced=rt.namespaced and not selection.namespace)
    micros, _, number = decoded.after[1].partition(".")
    if not (micros.isdecimal() and number.isdecimal() and len(micros) < 18 and len(number) < 19):
        raise status.expired(EXPIRED_LIST)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(micros)), int(number)


def _read_entry(record: ReadRecord) -> Entry:
    read = Read(
        id=record.id,
        time=_time(record.at),
        revision=record.revision,
        resource=record.resource,
        subresource=record.subresource,
        namespace=record.namespace,
        name=record.name,
        verb=record.verb,
        form=record.form,
        who={
            "username": record.user_name,
            "uid": record.user_uid,
            "groups": list(record.user_groups),
            "impersonator": record.impersonator,
            "sourceAddress": record.source_address,
            "userAgent": record.user_agent,
        },
        request={"verb": record.verb, "uri": record.request_uri, "auditID": record.audit_id},
    )
    obj = read_objects.read_object(read)
    plural = read_objects.READS if record.namespace else read_objects.CLUSTER_READS
    return _entry(f"{plural}.{GROUP}", record.namespace, str(record.id), obj)


def _recording_entry(recording: Recording) -> Entry:
    obj = read_objects.recording_object(
        name=str(recording.id),
        server=recording.server,
        since=_time(recording.since),
        until=_time(recording.until),
        lost=recording.lost,
        clean=recording.clean,
        policy=recording.policy,
    )
    return _entry(f"{RECORDINGS}.{GROUP}", "", str(recording.id), obj)


def _entry(resource: str, namespace: str, name: str, obj: dict[str, object]) -> Entry:
    return Entry(Key(resource, namespace, name), "", 0, 0, 1, orjson.dumps(obj), {}, {})


def _time(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(seconds * 1_000_000))
