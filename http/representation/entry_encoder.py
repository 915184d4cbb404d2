"""Entries encoded in the negotiated form: the object, its Table row or its metadata, as JSON, YAML, protobuf or
CBOR.

The fast path is JSON in the stored version: an entry's bytes are spliced into the answer without being decoded. Items
of a typed list have no apiVersion and kind (the list has them), so this common prefix is cut off:

    {"apiVersion":"v1","kind":"Secret","metadata":{…},…}   ->   {"metadata":{…},…}

Items of a list of custom resources keep both, since that list has no type in kube-apiserver.

Custom resources are spliced as long as the present schema changes nothing in them (present_schema.py).

Other frequent encodings (protobuf, rows of tables, metadata, other versions) are cached by entry (encoding_cache.py).
Long lists are sent in chunks (list_body.py), and their encoding pauses for other tasks. Each request has its own
EntryEncoder. Events of a watch: event_encoder.py.

Objects and lists share each choice of a form, so this is one class, and one file of more than 400 lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TypeAlias

from kubechronicle.actors.large_work import LARGE_BYTES
from kubechronicle.actors.pauses import Pauses
from kubechronicle.actors.reading.reads import Listing
from kubechronicle.api.builtin.common.cell_text import Since, ages_at
from kubechronicle.api.codecs import json, protobuf, unstructured
from kubechronicle.api.codecs.negotiate import CBOR, JSON, PROTOBUF, Representation
from kubechronicle.api.codecs.whole import encode
from kubechronicle.api.pipeline.pipeline import to_request_version
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.tables.table import (
    INCLUDE_METADATA,
    Row,
    encoded_row,
    filler,
    include_object_policy,
    partial_object_metadata,
    partial_object_metadata_list,
    printer_of,
    row_size,
    table,
    table_of_rows,
    table_row,
)
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.http.list_body import PART, Items, ListBody, encode_all, list_items, stored_bytes, stored_items
from kubechronicle.http.representation.answers import no_list, no_object
from kubechronicle.http.representation.encoding_cache import LARGE_ENTRIES, CachedEncoder, EncodingCache
from kubechronicle.http.representation.present_schema import PresentSchema

INDENT = b"\n    "  # of the lines of an item in an indented list
MANY = 4096
"""Entries whose bytes are counted between two pauses."""
MOST_STORED = 16 * 1024 * 1024
"""Bytes up to which a list of stored bytes is cached: repeated lists of 10,000 objects take a third less CPU."""
Body: TypeAlias = "bytes | ListBody"


class EntryEncoder:
    """Encodes the entries of one answer.

    ``rt``: the resource type, in the version of the request.
    ``form``: the negotiated form.
    ``include_object``: the includeObject parameter of tables.
    ``as_of``: the time for ages in tables; None for the present.
    ``cache``: encodings of other requests; None to cache nothing.
    """

    def __init__(
        self,
        rt: ResourceType,
        form: Representation,
        *,
        include_object: str = "",
        as_of: datetime | None = None,
        cache: EncodingCache | None = None,
    ) -> None:
        self.rt = rt
        self.form = form
        self._as_of = as_of
        self._table = form.kind == "Table"
        self._include = include_object or INCLUDE_METADATA if self._table else ""
        self._printer = printer_of(rt) if self._table else None
        self._meta = f"meta.k8s.io/{form.version}"
        self._partial = form.kind in ("PartialObjectMetadata", "PartialObjectMetadataList")
        self._plain = not self._table and not self._partial
        self._stored_form = rt.is_storage_version and rt.kind == rt.storage_kind
        self._schema = PresentSchema(rt, stored=self._stored_form) if rt.custom is not None else None
        # Length of the prefix that list items of this type lack (see the head of this file).
        typed = rt.custom is None
        self._encode_json: Callable[..., bytes] = (
            json.encode if typed else unstructured.encode if self._plain else unstructured.encode_typed
        )
        self._prefix = (
            len(b'{"apiVersion":"%b","kind":"%b",' % (rt.api_version.encode(), rt.kind.encode())) if typed else 1
        )
        self._cut_off = ("apiVersion", "kind") if typed else ()
        # With the type: that of a custom resource may be replaced by one with other columns while its objects stay.
        self._variant = (rt, form.media_type, self._table, self._partial, form.version, self._include)
        # Entries of the past, and of types that are not stored, exist for one request only.
        self._cache = cache if rt.stored and as_of is None else None

    def for_one(self) -> EntryEncoder:
        """Return an encoder with the same rules for an answer of one object. JSON of objects leaves nothing behind in
        this one."""
        return self if self._plain and self.form.media_type == JSON else self.copy()

    def copy(self) -> EntryEncoder:
        """Return an encoder with the same rules for another answer."""
        copy = EntryEncoder.__new__(EntryEncoder)
        copy.__dict__.update(self.__dict__)
        return copy

    @property
    def may_grow(self) -> bool:
        """True if defaults of the present schema may make an object larger than its stored bytes."""
        return self._schema is not None

    @property
    def transforms(self) -> bool:
        """True if answers have rows of tables, or metadata, instead of the objects: both are cached as bytes."""
        return not self._plain

    def work(self, entry: Entry) -> int:
        """Return the bytes that the encoding of an entry is worth; 0 if its stored bytes are a part of the answer."""
        if self.splices(entry):
            return 0
        size = len(entry.json) if self._schema is None or self._partial else self._schema.size(entry)
        printer = self._printer
        return size if printer is None else size * printer.times + printer.row_bytes

    @property
    def items_variant(self) -> Hashable:
        """The rules by which the items of lists are encoded; None if they also depend on the time."""
        return None if self._table else self._variant

    @property
    def _splices(self) -> bool:
        """True if the stored bytes of entries are a part of the answer as they are, unless a schema changes them."""
        if not self._plain or self.form.media_type != JSON or self.form.pretty:
            return False
        return self._stored_form or self._schema is not None

    def splices(self, entry: Entry) -> bool:
        """Return True if the stored bytes of an entry are known to be a part of the answer as they are."""
        return self._splices and (self._schema is None or self._schema.is_known_to_keep(entry))

    def _is_shown_as_stored(self, entry: Entry) -> bool:
        return self._stored_form if self._schema is None else self._schema.keeps(entry)

    @cached_property
    def _items(self) -> CachedEncoder[bytes]:
        """The encoder of list items: JSON, protobuf messages with tag and length, or items of CBOR."""
        if self.form.media_type == CBOR:
            encode_item = self._cbor_item
        else:
            encode_item = self._protobuf_item if self.form.media_type == PROTOBUF else self._json_item
        return CachedEncoder(self._cache, self._variant, encode_item, len, self.work)

    @cached_property
    def _rows(self) -> CachedEncoder[Row]:
        return CachedEncoder(self._cache, self._variant, self._row, row_size, self.work)

    def _protobuf_item(self, entry: Entry) -> bytes:
        return protobuf.list_item(protobuf.encode_raw(self._shown(entry)))

    def _cbor_item(self, entry: Entry) -> bytes:
        from kubechronicle.api.codecs import cbor_writer  # only with its feature gate, which is off by default

        return cbor_writer.encode_item(self._as_item(self._shown(entry)))

    def _as_item(self, obj: Object) -> Object:
        """Return an object as it stands in a list."""
        return {key: value for key, value in obj.items() if key not in self._cut_off} if self._plain else obj

    def _json_item(self, entry: Entry) -> bytes:
        if self._plain and not self._cut_off and self._is_shown_as_stored(entry):
            return entry.json
        return self._encode_json(self._as_item(self._shown(entry)))

    def _row(self, entry: Entry) -> Row:
        obj, served = self._both(entry)
        return encoded_row(self.rt, obj, include_object=self._include, version=self._meta, served=served)

    def _shown(self, entry: Entry) -> Object:
        """Return an entry's object, or its metadata, in the request's version."""
        obj, served = (entry.object(), None) if self._partial else self._both(entry)
        return partial_object_metadata(obj, self._meta) if self._partial else obj if served is None else served

    def _both(self, entry: Entry) -> tuple[Object, Object | None]:
        """Return an entry's object, and its form in the request's version; None if that is the same."""
        obj = entry.object()
        return obj, None if self._is_shown_as_stored(entry) else self.served(obj)

    # -- one object ---------------------------------------------------------------------------------------------------

    def one(self, entry: Entry) -> bytes:
        """Encode an answer of one object. StatusError 400, 406."""
        self._check_object_form()
        if self._splices and self._is_shown_as_stored(entry):
            return entry.json + b"\n"
        if self.form.media_type == PROTOBUF and not self._table:
            return self._enveloped(self._items.one(entry))
        return self._transformed(entry.object(), None) if self._partial else self._transformed(*self._both(entry))

    def _enveloped(self, item: bytes) -> bytes:
        """Return an object in protobuf, given its list item."""
        return protobuf.envelope(*self._object_type(), protobuf.raw_of_item(item))

    def object(self, obj: Object) -> bytes:
        """Encode an answer of an object without an entry, in the stored version (dry runs, last states), or as a
        webhook has converted it for the request. StatusError 400, 406."""
        self._check_object_form()
        custom = self.rt.custom
        is_converted = custom is not None and custom.conversion.get("strategy") == "Webhook"
        return self._transformed(obj, None if self._partial or is_converted else self.served(obj))

    def served(self, obj: Object) -> Object:
        """Return a stored object in the request's version."""
        return obj if self._stored_form and self._schema is None else to_request_version(self.rt, obj)

    def check_rows(self) -> None:
        """Check the includeObject parameter, as late as kube-apiserver does: when the object is read or written.
        StatusError 400."""
        if self._table:
            include_object_policy(self._include)

    def _check_object_form(self) -> None:
        self.check_rows()
        if self.form.kind == "PartialObjectMetadataList":
            raise no_list(self.rt)

    def _transformed(self, obj: Object, served: Object | None) -> bytes:
        """Encode an object. ``served``: its form in the request's version, if that differs."""
        if self._table:
            revision = obj["metadata"].get("resourceVersion", "")
            shown = self._table_of([(obj, served)], {"resourceVersion": revision})
        elif self._partial:
            shown = partial_object_metadata(obj, self._meta)
        else:
            shown = obj if served is None else served
        return self._encoded(shown)

    def _encoded(self, shown: Object) -> bytes:
        return encode(shown, self.form.media_type, pretty=self.form.pretty, encode_json=self._encode_json)

    def _table_of(
        self,
        objects: Sequence[tuple[Object, Object | None]],
        metadata: Object,
        *,
        no_headers: bool = False,
        listed: bool = False,
    ) -> Object:
        """Return the Table of objects, each with its form in the request's version, if that differs."""
        return table(
            self.rt,
            [obj for obj, _ in objects],
            now=self._now(),
            include_object=self._include,
            list_metadata={key: value for key, value in metadata.items() if value},
            version=self._meta,
            served=[obj if served is None else served for obj, served in objects],
            no_headers=no_headers,
            listed=listed,
            printer=self._printer,
        )

    # -- lists --------------------------------------------------------------------------------------------------------

    async def many(self, listing: Listing) -> Body:
        """Encode an answer of many objects. StatusError 400, 406."""
        self.check_rows()
        metadata: Object = {"resourceVersion": str(listing.revision)}
        if listing.continue_token:
            metadata["continue"] = listing.continue_token
        elif self.rt.custom is not None and self._plain:
            metadata["continue"] = ""
        if listing.remaining:
            metadata["remainingItemCount"] = listing.remaining
        if listing.shard is not None:
            metadata["shardInfo"] = {"selector": str(listing.shard)}
        return await self._list_of(listing.entries, metadata)

    async def _list_of(self, entries: Sequence[Entry], metadata: Object) -> Body:
        if self.form.kind == "PartialObjectMetadata":
            raise no_object(self.rt)
        if self._table:
            return await self._table_list(entries, metadata)
        # The list of meta.k8s.io/v1beta1 alone is a message in which items come first.
        if self.form.media_type == PROTOBUF and (self._plain or self.form.version == "v1"):
            return await self._protobuf_list(entries, metadata)
        if self.form.media_type == CBOR and (entries or self._plain):
            return await self._cbor_list(entries, metadata)
        if self.form.media_type == JSON and not self.form.pretty:
            return await self._json_list(entries, metadata)
        if self.form.media_type == JSON and len(entries) > PART:
            api_version, kind = self._list_type()
            frame = {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": []}
            return await self._pretty_list(entries, frame, b'"items": []', self._pretty_item)
        return await self._at_once(self._whole_list, entries, metadata)

    async def _at_once(
        self, encode_list: Callable[[Sequence[Entry], Object], bytes], entries: Sequence[Entry], metadata: Object
    ) -> bytes:
        """Encode a list as a whole, a long one in a thread."""
        if len(entries) <= PART and sum(map(self.work, entries)) <= LARGE_BYTES:
            return encode_list(entries, metadata)
        return await LARGE_ENTRIES.run(encode_list, entries, metadata)

    async def _pretty_list(
        self, entries: Sequence[Entry], frame: Object, empty: bytes, encode_item: Callable[[Entry], bytes]
    ) -> Body:
        """Encode a long list as indented JSON, item by item. ``empty``: the text of the frame without items."""
        opening, _, closing = self._encode_json(frame, pretty=True).rpartition(empty)
        encode_items = partial(
            encode_all, entries, CachedEncoder(None, None, encode_item, len, self.work), b"," + INDENT
        )
        items = await list_items(self._cache, ("pretty", self._variant), entries, encode_items, keeps=False)
        return ListBody(b"%b%b[%b" % (opening, empty[:-2], INDENT), items, b"\n  ]" + closing)

    def _pretty_item(self, entry: Entry) -> bytes:
        return self._encode_json(self._as_item(self._shown(entry)), pretty=True).replace(b"\n", INDENT)

    def _whole_list(self, entries: Sequence[Entry], metadata: Object) -> bytes:
        """Encode a list at once: YAML, short pretty JSON and old protobuf forms, of which nothing is cached."""
        if not self._partial:
            return self._object_list([self._shown(entry) for entry in entries], metadata)
        objects = [entry.object() for entry in entries]
        metadata_list = partial_object_metadata_list(objects, list_metadata=metadata, version=self._meta)
        return self._encoded(metadata_list)

    def _object_list(self, objects: Sequence[Object], metadata: Object) -> bytes:
        """Encode a list of whole objects in the request's version."""
        items = [{key: value for key, value in obj.items() if key not in self._cut_off} for obj in objects]
        listed = {"kind": self.rt.list_kind, "apiVersion": self.rt.api_version, "metadata": metadata, "items": items}
        return self._encoded(listed)

    def _object_type(self) -> tuple[str, str]:
        """Return the apiVersion and kind of an object in this form."""
        return (self._meta, "PartialObjectMetadata") if self._partial else (self.rt.api_version, self.rt.kind)

    def _list_type(self) -> tuple[str, str]:
        """Return the apiVersion and kind of a list in this form."""
        return (self._meta, self.form.kind) if self._partial else (self.rt.api_version, self.rt.list_kind)

    async def _protobuf_list(self, entries: Sequence[Entry], metadata: Object) -> Body:
        items = await list_items(self._cache, self._variant, entries, lambda: self._encoded_items(entries, b""))
        opening, closing = protobuf.list_frame(*self._list_type(), metadata, items.length)
        return ListBody(opening, items, closing)

    async def _cbor_list(self, entries: Sequence[Entry], metadata: Object) -> Body:
        from kubechronicle.api.codecs import cbor_writer  # only with its feature gate, which is off by default

        items = await list_items(self._cache, self._variant, entries, lambda: self._encoded_items(entries, b""))
        return ListBody(cbor_writer.list_opening(*self._list_type(), metadata, len(entries)), items, b"")

    async def _json_list(self, entries: Sequence[Entry], metadata: Object) -> Body:
        api_version, kind = self._list_type()
        frame = self._encode_json({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": []})
        opening, _, closing = frame.partition(b'"items":[]')
        if self._partial and not entries:
            return b'%b"items":null%b\n' % (opening, closing)
        stored = self._splices and (self._schema is None or await self._schema.keeps_all(entries))
        encode_items = self._stored_items if stored else partial(self._encoded_items, separator=b",")
        # Stored bytes are joined while they are sent: a joined copy of very many is not worth its memory.
        most = MOST_STORED if stored else sys.maxsize
        items = await list_items(self._cache, self._variant, entries, partial(encode_items, entries), most=most)
        return ListBody(b'%b"items":[' % opening, items, b"]%b\n" % closing)

    async def _stored_items(self, entries: Sequence[Entry]) -> Items:
        size, pauses = 0, Pauses()
        for start in range(0, len(entries), MANY):
            size += stored_bytes(entries[start : start + MANY])
            await pauses.pause()
        return stored_items(entries, self._prefix, size)

    async def _encoded_items(self, entries: Sequence[Entry], separator: bytes) -> Items:
        return await encode_all(entries, self._items, separator)

    async def _table_list(self, entries: Sequence[Entry], metadata: Object) -> Body:
        needs_list, now = self._printer is not None and self._printer.needs_list, self._now()
        if self.form.media_type == JSON and self.form.pretty and not needs_list and len(entries) > PART:
            frame, empty = self._table_of([], metadata), b'"rows": []'
            frame["rows"] = []
            return await self._pretty_list(entries, frame, empty, partial(self._pretty_row, since=ages_at(now)))
        if not self._fills_rows or needs_list:
            return await self._at_once(self._whole_table, entries, metadata)

        encode_rows = partial(encode_all, entries, self._rows, b",", filler(now))
        variant = (self._variant, now.replace(microsecond=0))  # ages are in seconds
        rows = await list_items(self._cache, variant, entries, encode_rows, keeps=False)
        return self._table_around(rows, metadata, ending=b"\n")

    def _whole_table(self, entries: Sequence[Entry], metadata: Object) -> bytes:
        return self._encoded(self._table_of([self._both(entry) for entry in entries], metadata, listed=True))

    def _pretty_row(self, entry: Entry, since: Since) -> bytes:
        obj, served = self._both(entry)
        row = table_row(
            self.rt,
            obj,
            since=since,
            include_object=self._include,
            version=self._meta,
            served=served or obj,
            printer=self._printer,
        )
        return self._encode_json(row, pretty=True).replace(b"\n", INDENT)

    @property
    def _fills_rows(self) -> bool:
        return self._table and self.form.media_type == JSON and not self.form.pretty

    def _now(self) -> datetime:
        return self._as_of or datetime.now(UTC)

    def _table_around(
        self, rows: Items, metadata: Object, *, no_headers: bool = False, ending: bytes = b""
    ) -> ListBody:
        """Return the Table of rows that are encoded already, with commas between them."""
        shown = {key: value for key, value in metadata.items() if value}
        made = table_of_rows(
            self.rt, [], list_metadata=shown, version=self._meta, no_headers=no_headers, printer=self._printer
        )
        empty = self._encode_json(made)
        if not rows.length:
            return ListBody(empty, rows, ending)
        # The empty table ends with "rows":[]} or, for some kinds, with "rows":null}.
        return ListBody(empty[: empty.rindex(b":") + 1] + b"[", rows, b"]}" + ending)
