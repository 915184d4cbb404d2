"""Events of a watch encoded in the negotiated form, as frames of the stream.

A watch keeps one EventEncoder. The Event caches its frames for all watchers of the same form.

The writes of a watch: the frames of its events, joined within a bound, and compressed for clients that accept it.

A compressed watch is a sequence of gzip members, one a write, as in kube-apiserver: a watch that waits holds no state
of a compressor, and watchers of one representation share the members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

from kubechronicle.actors.large_work import LARGE_BYTES
from kubechronicle.api.builtin.kinds import FILL_EMPTY
from kubechronicle.api.codecs import json, protobuf
from kubechronicle.api.codecs.negotiate import CBOR, JSON, PROTOBUF, Representation
from kubechronicle.api.errors import status
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema import types
from kubechronicle.api.tables.table import Row, filler, partial_object_metadata
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.http.list_body import joined_items
from kubechronicle.http.representation.compression import segment
from kubechronicle.http.representation.encoding_cache import LARGE_ENTRIES, EncodingCache
from kubechronicle.http.representation.entry_encoder import EntryEncoder
from kubechronicle.http.request_metrics import bucket_of

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class NoForm(Exception):
    """An event has no form as a PartialObjectMetadataList, because its object is no list: the watch ends before it."""


def _added(item: bytes) -> bytes:
    return b'{"type":"ADDED","object":%b}\n' % item


class EventEncoder(EntryEncoder):
    """Encodes the events of one watch. ``as_of`` moves on with each event."""

    def __init__(
        self,
        rt: ResourceType,
        form: Representation,
        *,
        include_object: str = "",
        as_of: datetime | None = None,
        cache: EncodingCache | None = None,
    ) -> None:
        super().__init__(rt, form, include_object=include_object, as_of=as_of, cache=cache)
        self._columns_sent = False
        self._formless = form.kind == "PartialObjectMetadataList"
        self._cache_key = (rt, form.media_type, form.kind, form.version, self._include)

    @property
    def stateful(self) -> bool:
        """True if the bytes of an event depend on the events before it, or an event ends the watch."""
        return self._table or self._formless

    def _check_form(self) -> None:
        if self._formless:
            raise NoForm

    async def initial(self, entries: Sequence[Entry]) -> list[bytes]:
        """Return the frames of the objects that exist when a watch begins. NoForm."""
        self._check_form()
        if self._table:
            if not self._fills_rows:
                return [self.event("ADDED", entry) for entry in entries]
            rows = await self._rows.all_large(entries)
            return [self._row_event("ADDED", row, entry) for row, entry in zip(rows, entries, strict=True)]
        if self.form.media_type == PROTOBUF:
            items = await self._items.all_large(entries)
            return [protobuf.encode_watch_event("ADDED", self._enveloped(item)) for item in items]
        if self.form.media_type == CBOR:
            if sum(map(self.work, entries)) > LARGE_BYTES:
                return await LARGE_ENTRIES.run(self._added, entries)
            return self._added(entries)
        if self._plain:
            shown_as_stored = self._schema is None or await self._schema.keeps_all(entries)
            if not shown_as_stored and self.form.media_type == JSON:
                return [_added(item) for item in await self._items.all_large(entries)]
            return self._added(entries)
        return [_added(item) for item in await self._items.all_large(entries)]

    def event(self, kind: str, entry: Entry, event: Event | None = None) -> bytes:
        """Return the frame of a watch event. ``event`` caches it for other watchers of the same form. NoForm."""
        self._check_form()
        if self._table:
            return self._table_event(kind, entry, event)
        if event is None:
            return self._framed(kind, entry)
        key = (kind, self._cache_key)
        framed = event.cache.get(key)
        if framed is None:
            framed = event.cache[key] = self._framed(kind, entry)
        return bytes(framed) if not isinstance(framed, bytes) else framed

    def _added(self, entries: Sequence[Entry]) -> list[bytes]:
        return [self._framed("ADDED", entry) for entry in entries]

    def _framed(self, kind: str, entry: Entry) -> bytes:
        if self._plain and self.form.media_type == JSON and self._is_shown_as_stored(entry):
            return b'{"type":"%b","object":%b}\n' % (kind.encode(), entry.json)
        return self.frame(kind, self._shown(entry))

    def _table_event(self, kind: str, entry: Entry, event: Event | None) -> bytes:
        """Return a Table of one row. Only the first one of a watch has column definitions. ``event`` caches the row,
        but not its ages."""
        if event is not None and self._as_of is not None:
            self._as_of = max(self._as_of, event.committed_at)
        if not self._fills_rows:
            metadata = {"resourceVersion": str(entry.revision)}
            return self.frame(kind, self._event_table([self._both(entry)], metadata))
        if event is None:
            (row,) = self._rows.all((entry,))
        else:
            # By the entry: a DELETED event of an object that no longer matches shows the state before the event.
            key = (entry, *self._variant)
            row = event.cache.get(key) or event.cache.setdefault(key, self._row(entry))
        return self._row_event(kind, row, entry)

    def _row_event(self, kind: str, row: Row, entry: Entry) -> bytes:
        metadata = {"resourceVersion": str(entry.revision)}
        body = self._table_around(joined_items(filler(self._now())([row])), metadata, no_headers=self._columns_sent)
        self._columns_sent = True
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), body.whole())

    def _event_table(self, objects: Sequence[tuple[Object, Object | None]], metadata: Object) -> Object:
        event_table = self._table_of(objects, metadata, no_headers=self._columns_sent)
        self._columns_sent = True
        return event_table

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """Return a BOOKMARK frame: all events up to the revision have been sent. ``initial_end``: the initial events
        end here. NoForm."""
        self._check_form()
        metadata: Object = {"resourceVersion": str(revision)}
        if initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        obj: Object = {"kind": self.rt.kind, "apiVersion": self.rt.api_version}
        if self.rt.definition:
            obj |= types.object_type(self.rt.definition).zero()  # the fields that Go writes even when they are empty
        obj["metadata"] = metadata
        if self._table:
            obj = self._event_table([(obj, None)], {"resourceVersion": str(revision)})
        elif self._partial:
            obj = partial_object_metadata(obj, self._meta)
        elif self.rt.resource in FILL_EMPTY:
            FILL_EMPTY[self.rt.resource](obj)
        return self.frame("BOOKMARK", obj)

    def error(self, error: status.StatusError) -> bytes:
        """Return the ERROR frame with which a watch ends."""
        return self.frame("ERROR", error.body(), json.encode)

    def frame(self, kind: str, obj: Object, encode_json: Callable[..., bytes] | None = None) -> bytes:
        if self.form.media_type == PROTOBUF:
            return protobuf.encode_watch_event(kind, protobuf.encode(obj))
        if self.form.media_type == CBOR:
            from kubechronicle.api.codecs import cbor_writer  # only with its feature gate, which is off by default

            return cbor_writer.encode_watch_event(kind, cbor_writer.encode(obj))
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), (encode_json or self._encode_json)(obj))


CHUNK_BYTES: Final = 64 * 1024
"""Bytes of frames joined into one write."""
MANY_BYTES: Final = 1024 * 1024
"""Bytes of the events of a batch from which their frames are made in a thread."""


class JoinedFrames:
    """Frames of one batch, joined; ``sent``: as they are sent, maybe compressed; the buckets of their sizes."""

    __slots__ = ("buckets", "frame", "sent", "size")

    def __init__(self, frames: list[bytes], *, gzipped: bool) -> None:
        self.buckets = tuple(map(bucket_of, frames))
        self.frame = frames[0] if len(frames) == 1 else b"".join(frames)
        self.size = len(self.frame)
        # Longer ones are not pushed.
        self.sent = segment(self.frame) if gzipped and 0 < self.size <= CHUNK_BYTES else self.frame


def is_slow(encoder: EventEncoder, events: Sequence[Event]) -> bool:
    """Return True if the frames of these events must be made in a thread: large objects are encoded, or many rows."""
    work = [encoder.work(event.entry) for event in events]
    return max(work, default=0) > LARGE_BYTES or sum(work) > MANY_BYTES


def joined(frames: list[bytes]) -> Iterator[bytes]:
    """Join frames into writes of bounded size."""
    pending: list[bytes] = []
    size = 0
    for frame in frames:
        pending.append(frame)
        size += len(frame)
        if size >= CHUNK_BYTES:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)
