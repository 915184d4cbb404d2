"""What a view holds and what a watcher is told: Entry and Event, and how a Record becomes one.

No I/O and no view here. An Entry is never changed once made: it is shared by the view, by the recent events, by the
snapshots and by every answer being written, so a change makes a new Entry and the old one stays true for its readers.

Sealing: a Record's body has no ``metadata.resourceVersion``, because the revision is only known once the change has
committed. ``seal`` puts it in by one copy of the bytes, without parsing:

    {"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}                           body of revision 7
    {"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"7","name":"a"}}     sealed
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import msgspec
import orjson

from kubechronicle.eventlog.records import Key, Operation, Record

NOTHING: Mapping[str, str] = MappingProxyType({})
"""The one empty mapping: most objects have no labels, and an empty dict for each of 100,000 would cost 6 MB."""

ERASED: Mapping[str, str] = MappingProxyType({})
"""The labels of an entry that is but a tombstone; nobody else's, so that being erased costs other entries nothing."""

Describe: TypeAlias = Callable[[str, dict[str, Any]], tuple[Mapping[str, str], Mapping[str, str]]]
"""(resource, object) -> (labels, selectable fields). Called once per change; must not keep or change the object."""

Plain: TypeAlias = Callable[[str], bool]
"""Whether a resource's selectable fields are its objects' names and namespaces alone, so that an object without labels
can be described without being parsed."""

# Inside a JSON string every quote is escaped, so these bytes cannot occur in the apiVersion or kind before metadata.
_METADATA = b'"metadata":{'
_LABELS = b'"labels":{'  # may occur elsewhere, but is there if an object has any


class Entry(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One object at one revision. It refers to nothing that could refer to it, and so the collector of cycles need not
    know of it: with 100,000 objects it is several times as quick.

    ``json``: the object as UTF-8 JSON with ``metadata.resourceVersion`` set to ``revision``. ``labels`` and ``fields``
    (the selectable fields, e.g. ``spec.nodeName``) are for reading only: they may be shared.
    """

    key: Key
    uid: str
    revision: int
    create_revision: int
    version: int
    json: bytes
    labels: Mapping[str, str]
    fields: Mapping[str, str]

    @property
    def erased(self) -> bool:
        """Whether its contents were erased from history: ``json`` is kind and metadata, as far as they are kept."""
        return self.labels is ERASED

    def object(self) -> dict[str, Any]:
        """The object as Python data, decoded anew: the caller may change it."""
        return cast(dict[str, Any], orjson.loads(self.json))


class Event(msgspec.Struct, frozen=True, eq=False):
    """One change of one key, as watchers see it.

    ``entry``: the object after the change; for a DELETE its last state, sealed with the DELETE's revision.
    ``previous``: the object before it (None: the key was absent), with its own revision.
    ``cache``: encoded forms of this event by representation, filled by whoever encodes first, shared by all watchers.
    """

    revision: int
    operation: Operation
    entry: Entry
    previous: Entry | None
    committed_at: datetime
    cache: dict[Hashable, Any] = msgspec.field(default_factory=dict)


def seal(body: bytes, revision: int) -> bytes:
    """The body with ``"resourceVersion":"<revision>",`` right after the first ``"metadata":{``.

    The body is as in ``Change.body``: metadata is present, not empty, and without resourceVersion.
    """
    return body.replace(_METADATA, b'%b"resourceVersion":"%d",' % (_METADATA, revision), 1)


def entry_of(record: Record, describe: Describe, plain: Plain | None = None) -> Entry:
    """The Entry a Record stands for. Parses the body only if the Record does not bring the object decoded, and if there
    is something to be found in it."""
    decoded = record.decoded
    resource, namespace, name = record.key
    if decoded is None:
        if record.erased:
            return tombstone_of(record)
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
    )


def tombstone_of(record: Record) -> Entry:
    """The Entry of a record whose contents were erased: what is kept of the object, without the mark."""
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
