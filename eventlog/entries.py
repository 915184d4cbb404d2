"""Entry and Event: the contents of a view and of a watch, and their construction from Records.

No I/O and no view here. An Entry never changes: the view, the recent events, the snapshots and every answer being
written share it. A change makes a new Entry, and readers keep the old one.

Sealing: a Record's body has no ``metadata.resourceVersion``, because the revision is known only after the commit.
``seal`` inserts it in one copy of the bytes, without parsing:

    {"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}                           body of revision 7
    {"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"7","name":"a"}}     sealed

A body with sorted keys has a blank behind its first brace, and one at the place of resourceVersion. Other blanks stand
in strings only, where a quote has a backslash before it:

    { "apiVersion":"g/v1","kind":"A","metadata":{"name":"a", "uid":"u"}}                    body of revision 7
    {"apiVersion":"g/v1","kind":"A","metadata":{"name":"a","resourceVersion":"7","uid":"u"}} sealed
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import msgspec
import orjson
from msgspec.structs import force_setattr

from kubechronicle.eventlog.records import Key, Operation, Record

NOTHING: Mapping[str, str] = MappingProxyType({})
"""The shared empty mapping. Most objects have no labels, and an empty dict for each of 100,000 would cost 6 MB."""

ERASED: Mapping[str, str] = MappingProxyType({})
"""The labels of every tombstone entry, and of no other, so that ``Entry.erased`` needs no field of its own."""

UNREADABLE: Mapping[str, str] = MappingProxyType({})
"""The labels of every entry whose contents cannot be decrypted, and of no other."""

Describe: TypeAlias = Callable[[str, dict[str, Any]], tuple[Mapping[str, str], Mapping[str, str]]]
"""(resource, object) -> (labels, selectable fields). Called once per change; must not keep or change the object."""

Plain: TypeAlias = Callable[[str], bool]
"""(resource) -> True if its selectable fields are name and namespace alone. An object of such a resource that has no
labels is described without parsing."""

# Inside a JSON string every quote is escaped, so these bytes cannot occur in the apiVersion or kind before metadata.
_METADATA = b'"metadata":{'
_SORTED = b"{ "
_UID = b' "uid":'
_LABELS = b'"labels":{'  # may occur elsewhere, but is in every object that has labels


class Ending(msgspec.Struct, frozen=True):
    """The metadata on which the end of an object depends. ``deleted``: its deletionTimestamp."""

    deleted: str | None = msgspec.field(name="deletionTimestamp", default=None)
    finalizers: tuple[str, ...] | None = None
    owners: tuple[dict[str, Any], ...] | None = msgspec.field(name="ownerReferences", default=None)


class _EntryHead(msgspec.Struct):
    metadata: Ending


_HEAD: Final = msgspec.json.Decoder(_EntryHead)


class Entry(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One object at one revision.

    ``json``: the object as UTF-8 JSON with ``metadata.resourceVersion`` set to ``revision``.
    ``labels``, ``fields`` (the selectable fields, e.g. ``spec.nodeName``): read-only, since they may be shared.
    ``mark``: a reader's note about the contents (``mark_as``); no part of the object.

    An Entry is in no reference cycle, so the garbage collector does not track it. With 100,000 objects a collection is
    several times as fast.
    """

    key: Key
    uid: str
    revision: int
    create_revision: int
    version: int
    json: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]
    mark: Any = None

    @property
    def erased(self) -> bool:
        """True if the contents were erased from history; ``json`` then holds the kept parts of kind and metadata."""
        return self.labels is ERASED

    @property
    def unreadable(self) -> bool:
        """True if the contents cannot be decrypted; ``json`` then holds kind and name, and ``mark`` the reason."""
        return self.labels is UNREADABLE

    @property
    def withheld(self) -> bool:
        """True if labels and fields are not known: the contents were erased, or cannot be decrypted."""
        return self.labels is ERASED or self.labels is UNREADABLE

    def object(self) -> dict[str, Any]:
        """Return the object as freshly decoded Python data, which the caller may change."""
        return cast(dict[str, Any], orjson.loads(self.json))

    def ending(self) -> Ending:
        """Return the metadata on which the object's end depends. The rest is passed over, in a tenth of the time of
        ``object``; a large one would hold the event loop."""
        return _HEAD.decode(self.json).metadata

    def mark_as(self, mark: Any) -> None:
        """Note a fact that follows from the contents, so that it needs no second look. ``mark`` refers to nothing."""
        force_setattr(self, "mark", mark)


class Event(msgspec.Struct, frozen=True, eq=False):
    """One change of one key, as watchers see it.

    ``entry``: the object after the change; for a DELETE its last state, sealed with the DELETE's revision.
    ``previous``: the object before the change, with its own revision; None: the key was absent.
    ``cache``: encodings of this event by representation, filled by the first watcher and shared by all.
    """

    revision: int
    operation: Operation
    entry: Entry
    previous: Entry | None
    committed_at: datetime
    cache: dict[Hashable, Any] = msgspec.field(default_factory=dict)


def seal(body: bytes, revision: int) -> bytes:
    """Return the body with ``"resourceVersion":"<revision>",`` right after the first ``"metadata":{``, or at its mark.

    The body is as in ``Change.body``: metadata is present, not empty, and without resourceVersion.
    """
    if body.startswith(_SORTED):
        place = body.index(_UID)
        return b'{%b"resourceVersion":"%d",%b' % (body[2:place], revision, body[place + 1 :])
    return body.replace(_METADATA, b'%b"resourceVersion":"%d",' % (_METADATA, revision), 1)


def entry_of(record: Record, describe: Describe, plain: Plain | None = None) -> Entry:
    """Return the Entry of a Record. Parses the body only if the Record lacks the decoded object, and only if labels or
    fields can be in it (``plain``)."""
    decoded = record.decoded
    resource, namespace, name = record.key
    if decoded is None:
        if record.erased:
            return tombstone_of(record)
        if record.problem:
            return unreadable_of(record)
        if plain is not None and _LABELS not in record.body and plain(resource):
            decoded = {"metadata": {"name": name, "namespace": namespace}}
        else:
            decoded = orjson.loads(record.body)
    labels, fields = describe(resource, decoded)
    return Entry(
        # Interned: a resource and a namespace are shared by thousands of keys that were read as separate strings.
        Key(sys.intern(resource), sys.intern(namespace), name),
        record.uid,
        record.revision,
        record.create_revision,
        record.version,
        seal(record.body, record.revision),
        labels or NOTHING,
        fields or NOTHING,
        record.mark,
    )


def unreadable_of(record: Record) -> Entry:
    """Return the Entry of a record that cannot be decrypted: kind and name, with the reason as its mark."""
    return Entry(
        record.key,
        record.uid,
        record.revision,
        record.create_revision,
        record.version,
        seal(record.body, record.revision),
        UNREADABLE,
        NOTHING,
        record.problem,
    )


def tombstone_of(record: Record) -> Entry:
    """Return the Entry of a record whose contents were erased: the kept parts of the object, without the mark."""
    return Entry(
        record.key,
        record.uid,
        record.revision,
        record.create_revision,
        record.version,
        seal(b"{" + record.body[record.body.index(b",") + 1 :], record.revision),
        ERASED,
        NOTHING,
    )
