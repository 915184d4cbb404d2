"""Entries into bytes, in the representation a client asked for: JSON, YAML or protobuf, of the object, of its Table or
of its metadata alone.

The fast path is JSON in the stored version: an entry's bytes are spliced into the answer, not decoded. Items of a typed
list carry no apiVersion and kind (they are the list's), so their common prefix is cut off:

    {"apiVersion":"v1","kind":"Secret","metadata":{…},…}   ->   {"metadata":{…},…}

Everything else that is asked for by the thousand (protobuf, rows of tables, metadata, other versions) is encoded once
for each entry and kept (encoded.py). Long lists leave in pieces (pieces.py), and while one is encoded, others get their
turn.

An Encoder is made per request; a watch keeps one, and what it encodes is cached in the Event for all watchers alike.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TypeAlias

import trio

from kubechronicle.actors.reading.reads import Listing
from kubechronicle.api.codecs import json, protobuf, yaml
from kubechronicle.api.codecs.negotiate import Representation
from kubechronicle.api.errors import status
from kubechronicle.api.pipeline.pipeline import to_request_version
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.tables import (
    include_object_policy,
    partial_object_metadata,
    partial_object_metadata_list,
    printer_of,
    table,
    table_of_rows,
)
from kubechronicle.api.tables.rows import Row, encoded_row, filler, row_size
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.http.pieces import Items, Pieces, encoded_items, stored_bytes, stored_items
from kubechronicle.http.representation.encoding_cache import Encoded, Encodings
from kubechronicle.http.representation.list_cache import Turns, list_items

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

PART = 64
"""Entries encoded between two looks at the clock."""
MANY = 4096
"""Entries whose bytes are counted between two looks."""
IN_ONE = trio.CapacityLimiter(2)
"""Threads for lists that are encoded in one go, YAML above all: 10,000 objects take seconds, others must not wait."""

Body: TypeAlias = "bytes | Pieces"


def encode(value: Object, media_type: str, *, pretty: bool = False) -> bytes:
    """A whole answer in one of the three media types."""
    if media_type == YAML:
        return yaml.encode(value)
    if media_type == PROTOBUF:
        # APIVersions alone tells no version of its own in JSON (kube-apiserver strips it for the oldest clients).
        return protobuf.encode(value if "apiVersion" in value else {"apiVersion": "v1", **value})
    return json.encode(value, pretty=pretty) + b"\n"


class Encoder:
    """``include_object``: the includeObject parameter of tables. ``then``: when it is, for the ages in tables; by
    default now, otherwise as of then and of each event. ``kept``: what was encoded for other requests."""

    def __init__(
        self,
        rt: ResourceType,
        form: Representation,
        *,
        include_object: str = "",
        then: datetime | None = None,
        kept: Encodings | None = None,
    ) -> None:
        self.rt = rt
        self.form = form
        self._then = then
        self._table = form.kind == "Table"
        self._include = include_object_policy(include_object) if self._table else ""
        self._meta = f"meta.k8s.io/{form.version}"
        self._partial = form.kind in ("PartialObjectMetadata", "PartialObjectMetadataList")
        self._plain = not self._table and not self._partial
        self._stored_form = rt.is_storage_version and rt.kind == rt.storage_kind
        # What every stored object of this type begins with; see encode_stored.
        self._prefix = len(b'{"apiVersion":"%b","kind":"%b",' % (rt.api_version.encode(), rt.kind.encode()))
        self._headers_told = False
        self._cache_key = (rt.api_version, form.media_type, form.kind, form.version, self._include)
        # With the type: a custom resource's may be replaced by one with other columns, while its objects stay.
        self._variant = (rt, form.media_type, self._table, self._partial, form.version, self._include)
        # Entries of what is not stored, and of the past, are made for a request: nobody meets them again.
        self._kept = kept if rt.stored and then is None else None

    def again(self) -> Encoder:
        """Another by the same rules, for another answer. This one must not have encoded anything."""
        made = Encoder.__new__(Encoder)
        made.__dict__.update(self.__dict__)
        return made

    @property
    def items_of(self) -> Hashable:
        """What items of lists are made by, besides their entries; None if also by what the time is."""
        return None if self._table else self._variant

    @property
    def stateful(self) -> bool:
        """Whether an event's bytes depend on the events before it."""
        return self._table

    @cached_property
    def _items(self) -> Encoded[bytes]:
        """Entries as items of a list: JSON, or messages with their tag and length."""
        make = self._protobuf_item if self.form.media_type == PROTOBUF else self._json_item
        return Encoded(self._kept, self._variant, make, len)

    @cached_property
    def _rows(self) -> Encoded[Row]:
        return Encoded(self._kept, self._variant, self._row, row_size)

    def _protobuf_item(self, entry: Entry) -> bytes:
        return protobuf.list_item(protobuf.encode_raw(self._made(entry.object())))

    def _json_item(self, entry: Entry) -> bytes:
        obj = self._made(entry.object())
        if self._plain:
            obj = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
        return json.encode(obj)

    def _row(self, entry: Entry) -> Row:
        obj = entry.object()
        served = None if self._stored_form else self.served(obj)
        return encoded_row(self.rt, obj, include_object=self._include, version=self._meta, served=served)

    def _made(self, obj: Object) -> Object:
        """What a client sees of a stored object."""
        return partial_object_metadata(obj, self._meta) if self._partial else self.served(obj)

    # -- one object ---------------------------------------------------------------------------------------------------

    def one(self, entry: Entry) -> bytes:
        """An answer of one object."""
        self._refuse_list_form()
        if self._plain and self.form.media_type == JSON and self._stored_form and not self.form.pretty:
            return entry.json + b"\n"
        if self.form.media_type == PROTOBUF and not self._table:
            return self._enveloped(self._items.one(entry))
        return self._transformed(entry.object())

    def _enveloped(self, item: bytes) -> bytes:
        """An object in protobuf, of what it is as an item."""
        return protobuf.envelope(*self._object_type(), protobuf.raw_of_item(item))

    def object(self, obj: Object) -> bytes:
        """As ``one``, of an object in the stored version that is not stored as it is (dry runs, last states)."""
        self._refuse_list_form()
        return self._transformed(obj)

    def served(self, obj: Object) -> Object:
        """A stored object in the request's version."""
        return obj if self._stored_form else to_request_version(self.rt, obj)

    def _refuse_list_form(self) -> None:
        if self.form.kind == "PartialObjectMetadataList":
            raise status.not_acceptable_because(
                "you requested PartialObjectMetadataList, but the requested object is not a list "
                f"(*{_go_package(self.rt)}.{self.rt.kind})"
            )

    def _transformed(self, obj: Object) -> bytes:
        if self._table:
            obj = self._table_of([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
        else:
            obj = self._made(obj)
        return encode(obj, self.form.media_type, pretty=self.form.pretty)

    def _table_of(self, objects: Sequence[Object], metadata: Object, *, no_headers: bool = False) -> Object:
        return table(
            self.rt,
            objects,
            now=self._now(),
            include_object=self._include,
            list_metadata={key: value for key, value in metadata.items() if value},
            version=self._meta,
            served=None if self._stored_form else [self.served(obj) for obj in objects],
            no_headers=no_headers,
        )

    # -- lists --------------------------------------------------------------------------------------------------------

    async def many(self, listing: Listing) -> Body:
        """An answer of many objects."""
        metadata: Object = {"resourceVersion": str(listing.revision)}
        if listing.continue_token:
            metadata["continue"] = listing.continue_token
        if listing.remaining:
            metadata["remainingItemCount"] = listing.remaining
        return await self._list_of(listing.entries, metadata)

    async def _list_of(self, entries: Sequence[Entry], metadata: Object) -> Body:
        if self.form.kind == "PartialObjectMetadata":
            raise status.not_acceptable_because(
                "you requested PartialObjectMetadata, but the requested object is a list "
                f"(*{_go_package(self.rt)}.{self.rt.list_kind})"
            )
        if self._table:
            return await self._table_list(entries, metadata)
        # The list of meta.k8s.io/v1beta1 alone is a message in which items come first.
        if self.form.media_type == PROTOBUF and (self._plain or self.form.version == "v1"):
            return await self._protobuf_list(entries, metadata)
        if self.form.media_type == JSON and not self.form.pretty:
            return await self._json_list(entries, metadata)
        if len(entries) <= PART:
            return self._list_in_one(entries, metadata)
        return await trio.to_thread.run_sync(self._list_in_one, entries, metadata, limiter=IN_ONE)

    def _list_in_one(self, entries: Sequence[Entry], metadata: Object) -> bytes:
        """In the representations that people read, and the oldest: nothing of it can be kept for others."""
        objects = [entry.object() for entry in entries]
        if not self._partial:
            return self._object_list(objects, metadata)
        made = partial_object_metadata_list(objects, list_metadata=metadata, version=self._meta)
        return encode(made, self.form.media_type, pretty=self.form.pretty)

    def _object_list(self, objects: Sequence[Object], metadata: Object) -> bytes:
        """A plain list, encoded as a whole."""
        items = [
            {key: value for key, value in self.served(obj).items() if key not in ("apiVersion", "kind")}
            for obj in objects
        ]
        made = {"kind": self.rt.list_kind, "apiVersion": self.rt.api_version, "metadata": metadata, "items": items}
        return encode(made, self.form.media_type, pretty=self.form.pretty)

    def _object_type(self) -> tuple[str, str]:
        """The apiVersion and kind of an object, as a client sees it."""
        return (self._meta, "PartialObjectMetadata") if self._partial else (self.rt.api_version, self.rt.kind)

    def _list_type(self) -> tuple[str, str]:
        """The list's apiVersion and kind."""
        return (self._meta, self.form.kind) if self._partial else (self.rt.api_version, self.rt.list_kind)

    async def _protobuf_list(self, entries: Sequence[Entry], metadata: Object) -> Body:
        items = await list_items(self._kept, self._variant, entries, lambda: self._encoded_items(entries, b""))
        opening, closing = protobuf.list_frame(*self._list_type(), metadata, items.length)
        return Pieces(opening, items, closing)

    async def _json_list(self, entries: Sequence[Entry], metadata: Object) -> Body:
        api_version, kind = self._list_type()
        head = json.encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})
        if self._partial and not entries:
            return head[:-1] + b',"items":null}\n'
        stored = self._plain and self._stored_form
        make = self._stored_items if stored else partial(self._encoded_items, separator=b",")
        items = await list_items(self._kept, self._variant, entries, partial(make, entries))
        return Pieces(head[:-1] + b',"items":[', items, b"]}\n")

    async def _stored_items(self, entries: Sequence[Entry]) -> Items:
        size, turns = 0, Turns()
        for start in range(0, len(entries), MANY):
            size += stored_bytes(entries[start : start + MANY])
            await turns.pause()
        return stored_items(entries, self._prefix, size)

    async def _encoded_items(self, entries: Sequence[Entry], separator: bytes) -> Items:
        return encoded_items(await self._in_turns(entries, self._items.all), separator=separator)

    async def _table_list(self, entries: Sequence[Entry], metadata: Object) -> Body:
        # Where rows are sorted by what is in the objects, the objects are needed.
        if not self._fills_rows or printer_of(self.rt).order is not None:
            made = self._table_of([entry.object() for entry in entries], metadata)
            return encode(made, self.form.media_type, pretty=self.form.pretty)
        fill = filler(self._now())
        rows = await self._in_turns(entries, lambda part: [fill(row) for row in self._rows.all(part)])
        return self._table_around(rows, metadata, ending=b"\n")

    @property
    def _fills_rows(self) -> bool:
        return self._table and self.form.media_type == JSON and not self.form.pretty

    def _now(self) -> datetime:
        return self._then or datetime.now(UTC)

    def _table_around(
        self, rows: Sequence[bytes], metadata: Object, *, no_headers: bool = False, ending: bytes = b""
    ) -> Pieces:
        """The Table of rows that are encoded already."""
        told = {key: value for key, value in metadata.items() if value}
        made = json.encode(table_of_rows(self.rt, [], list_metadata=told, version=self._meta, no_headers=no_headers))
        if not rows:
            return Pieces(made, encoded_items(()), ending)
        # Without rows it ends with "rows":[]} or, for some kinds, with "rows":null}.
        return Pieces(made[: made.rindex(b":") + 1] + b"[", encoded_items(rows, separator=b","), b"]}" + ending)

    async def _in_turns(
        self, entries: Sequence[Entry], encode_part: Callable[[Sequence[Entry]], list[bytes]]
    ) -> list[bytes]:
        """All entries, encoded part by part. Whoever else waits gets a turn after a while."""
        done: list[bytes] = []
        turns = Turns()
        for start in range(0, len(entries), PART):
            done += encode_part(entries[start : start + PART])
            await turns.pause()
        return done

    # -- events -------------------------------------------------------------------------------------------------------

    def initial(self, entries: Sequence[Entry]) -> list[bytes]:
        """The frames of what there is when a watch begins."""
        if self._table:
            return [self.event("ADDED", entry) for entry in entries]
        if self.form.media_type == PROTOBUF:
            items = self._items.all(entries)
            return [protobuf.encode_watch_event("ADDED", self._enveloped(item)) for item in items]
        if self._plain:
            return [self._framed("ADDED", entry) for entry in entries]
        return [b'{"type":"ADDED","object":%b}\n' % item for item in self._items.all(entries)]

    def event(self, kind: str, entry: Entry, event: Event | None = None) -> bytes:
        """A watch event, framed for the stream. Cached in ``event`` for other watchers of the same representation."""
        if self._table:
            return self._table_event(kind, entry, event)
        if event is None:
            return self._framed(kind, entry)
        key = (kind, self._cache_key)
        found = event.cache.get(key)
        if found is None:
            found = event.cache[key] = self._framed(kind, entry)
        return bytes(found) if not isinstance(found, bytes) else found

    def _framed(self, kind: str, entry: Entry) -> bytes:
        if self._plain and self._stored_form and self.form.media_type == JSON:
            return b'{"type":"%b","object":%b}\n' % (kind.encode(), entry.json)
        return self.frame(kind, self._made(entry.object()))

    def _table_event(self, kind: str, entry: Entry, event: Event | None) -> bytes:
        """A Table of one row; only the first of a watch tells its columns. Its row is cached, its ages are not."""
        metadata = {"resourceVersion": str(entry.revision)}
        if event is not None and self._then is not None:
            self._then = max(self._then, event.committed_at)
        if not self._fills_rows:
            return self.frame(kind, self._event_table([entry.object()], metadata))
        if event is None:
            (row,) = self._rows.all((entry,))
        else:
            # By the entry: whoever is told DELETED because it matches no longer is told of the state before.
            key = (entry, *self._variant)
            row = event.cache.get(key) or event.cache.setdefault(key, self._row(entry))
        made = self._table_around([filler(self._now())(row)], metadata, no_headers=self._headers_told)
        self._headers_told = True
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), made.whole())

    def _event_table(self, objects: Sequence[Object], metadata: Object) -> Object:
        made = self._table_of(objects, metadata, no_headers=self._headers_told)
        self._headers_told = True
        return made

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """BOOKMARK: everything up to the revision has been told; ``initial_end``: the initial events end here."""
        metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        obj: Object = {"kind": self.rt.kind, "apiVersion": self.rt.api_version, "metadata": metadata}
        if self._table:
            obj = self._event_table([obj], {"resourceVersion": str(revision)})
        elif self._partial:
            obj = partial_object_metadata(obj, self._meta)
        return self.frame("BOOKMARK", obj)

    def error(self, error: status.StatusError) -> bytes:
        """ERROR: the watch ends, and why."""
        return self.frame("ERROR", error.body())

    def frame(self, kind: str, obj: Object) -> bytes:
        if self.form.media_type == PROTOBUF:
            return protobuf.encode_watch_event(kind, protobuf.encode(obj))
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), json.encode(obj))


def _go_package(rt: ResourceType) -> str:
    """The internal Go package whose name such errors show: ``rbac`` for rbac.authorization.k8s.io."""
    return rt.group.partition(".")[0] or "core"
