"""Entries into bytes, in the representation a client asked for: JSON, YAML or protobuf, of the object, of its Table or
of its metadata alone.

The fast path is JSON in the stored version: an entry's bytes are spliced into the answer, not decoded. Items of a typed
list carry no apiVersion and kind (they are the list's), so their common prefix is cut off:

    {"apiVersion":"v1","kind":"Secret","metadata":{…},…}   ->   {"metadata":{…},…}

An Encoder is made per request; a watch keeps one, and what it encodes is cached in the Event for all watchers alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from kubechronicle.actors.reads import Listing
from kubechronicle.api import status
from kubechronicle.api.codecs import json, protobuf, yaml
from kubechronicle.api.codecs.negotiate import Representation
from kubechronicle.api.pipeline import to_request_version
from kubechronicle.api.registry import ResourceType
from kubechronicle.api.tables import (
    include_object_policy,
    partial_object_metadata,
    partial_object_metadata_list,
    table,
)
from kubechronicle.eventlog.entries import Entry, Event

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"

Object = dict[str, Any]
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


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
    default now, otherwise as of then and of each event."""

    def __init__(
        self, rt: ResourceType, form: Representation, *, include_object: str = "", then: datetime | None = None
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

    @property
    def stateful(self) -> bool:
        """Whether an event's bytes depend on the events before it."""
        return self._table

    # -- one object ---------------------------------------------------------------------------------------------------

    def one(self, entry: Entry) -> bytes:
        """An answer of one object."""
        self._refuse_list_form()
        if self._plain and self.form.media_type == JSON and self._stored_form and not self.form.pretty:
            return entry.json + b"\n"
        return self._transformed(entry.object())

    def object(self, obj: Object) -> bytes:
        """As ``one``, of an object in the stored version that is not stored as it is (dry runs, last states)."""
        self._refuse_list_form()
        return self._transformed(obj)

    def object_of(self, entry: Entry) -> Object:
        """The entry's object in the request's version."""
        return self.served(entry.object())

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
        elif self._partial:
            obj = partial_object_metadata(obj, self._meta)
        else:
            obj = self.served(obj)
        return encode(obj, self.form.media_type, pretty=self.form.pretty)

    def _table_of(self, objects: Sequence[Object], metadata: Object, *, no_headers: bool = False) -> Object:
        return table(
            self.rt,
            objects,
            now=self._then or datetime.now(UTC),
            include_object=self._include,
            list_metadata={key: value for key, value in metadata.items() if value},
            version=self._meta,
            served=None if self._stored_form else [self.served(obj) for obj in objects],
            no_headers=no_headers,
        )

    # -- lists --------------------------------------------------------------------------------------------------------

    def many(self, listing: Listing) -> bytes:
        """An answer of many objects."""
        metadata: Object = {"resourceVersion": str(listing.revision)}
        if listing.continue_token:
            metadata["continue"] = listing.continue_token
        if listing.remaining:
            metadata["remainingItemCount"] = listing.remaining
        return self.list(listing.entries, metadata)

    def list(self, entries: Iterable[Entry], metadata: Object) -> bytes:
        if self.form.kind == "PartialObjectMetadata":
            raise status.not_acceptable_because(
                "you requested PartialObjectMetadata, but the requested object is a list "
                f"(*{_go_package(self.rt)}.{self.rt.list_kind})"
            )
        if self._table:
            made = self._table_of([entry.object() for entry in entries], metadata)
        elif self._partial:
            objects = (entry.object() for entry in entries)
            made = partial_object_metadata_list(objects, list_metadata=metadata, version=self._meta)
        elif self.form.media_type == JSON and not self.form.pretty:
            return self._json_list(entries, metadata)
        elif self.form.media_type == PROTOBUF:
            items = (protobuf.encode_raw(self.object_of(entry)) for entry in entries)
            return protobuf.encode_list(self.rt.api_version, self.rt.list_kind, metadata, items)
        else:
            return self.object_list([self.object_of(entry) for entry in entries], metadata)
        return encode(made, self.form.media_type, pretty=self.form.pretty)

    def object_list(self, objects: Sequence[Object], metadata: Object) -> bytes:
        """A plain list of objects that are not stored as they are (what a deletecollection dry run would delete)."""
        items = [{key: value for key, value in obj.items() if key not in ("apiVersion", "kind")} for obj in objects]
        made = {"kind": self.rt.list_kind, "apiVersion": self.rt.api_version, "metadata": metadata, "items": items}
        if self.form.media_type == PROTOBUF:
            raw = (protobuf.encode_raw(obj) for obj in objects)
            return protobuf.encode_list(self.rt.api_version, self.rt.list_kind, metadata, raw)
        return encode(made, self.form.media_type, pretty=self.form.pretty)

    def _json_list(self, entries: Iterable[Entry], metadata: Object) -> bytes:
        head = json.encode({"kind": self.rt.list_kind, "apiVersion": self.rt.api_version, "metadata": metadata})
        if self._stored_form:
            cut = self._prefix
            items = b",{".join([entry.json[cut:] for entry in entries])
            opening = b"{" if items else b""
            return b'%b,"items":[%b%b]}\n' % (head[:-1], opening, items)
        objects = [self.object_of(entry) for entry in entries]
        return self.object_list(objects, metadata)

    # -- events -------------------------------------------------------------------------------------------------------

    def event(self, kind: str, entry: Entry, event: Event | None = None) -> bytes:
        """A watch event, framed for the stream. Cached in ``event`` for other watchers of the same representation."""
        if event is None or self._table:
            if event is not None and self._then is not None:
                self._then = max(self._then, event.committed_at)
            return self._framed(kind, self._event_object(entry), entry)
        key = (kind, self._cache_key)
        found = event.cache.get(key)
        if found is None:
            found = event.cache[key] = self._framed(kind, None, entry)
        return bytes(found) if not isinstance(found, bytes) else found

    def _framed(self, kind: str, obj: Object | None, entry: Entry) -> bytes:
        if self._plain and self._stored_form and self.form.media_type == JSON:
            return b'{"type":"%b","object":%b}\n' % (kind.encode(), entry.json)
        return self.frame(kind, self._event_object(entry) if obj is None else obj)

    def _event_object(self, entry: Entry) -> Object:
        obj = entry.object()
        if self._table:
            return self._event_table([obj], {"resourceVersion": str(entry.revision)})
        return partial_object_metadata(obj, self._meta) if self._partial else self.served(obj)

    def _event_table(self, objects: Sequence[Object], metadata: Object) -> Object:
        """A Table of one row; only the first of a watch tells its columns."""
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
