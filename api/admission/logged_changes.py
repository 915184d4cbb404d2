"""Changes of the log as a reader of many gets them: Revisions whose objects are not decoded yet.

A list of Revisions with ``content=states`` or ``content=after`` is decoded into these records. Most of its bytes are
objects, and most readers decode few of them. The records refer to no other records, so the collector of cycles need not
look at the thousands of each page (gc=False).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import orjson
from msgspec import UNSET, UnsetType, field

from kubechronicle.api.values.objects import Object

Encoded = msgspec.Raw | UnsetType
"""An object as JSON, UNSET if there is none."""


class Name(msgspec.Struct, gc=False):
    """The metadata of a Revision or of a list of them."""

    name: str = ""
    continue_: str = field(default="", name="continue")


class Reference(msgspec.Struct, gc=False):
    """The changed object. ``resource``: the plural."""

    resource: str
    name: str
    namespace: str = ""


class LoggedRequest(msgspec.Struct, gc=False):
    """The request that made a change."""

    verb: str = ""
    uri: str = ""
    audit_id: str = field(default="", name="auditID")


class LoggedChange(msgspec.Struct, gc=False):
    """One Revision (history.kubechronicle.dev).

    ``who``: username, uid, groups, extra and more; without empty members.
    ``before``, ``after``: the objects before and after a creation or update; ``last``: a deleted object.
    """

    metadata: Name
    operation: str
    time: str
    object: Reference
    who: dict[str, Any] = field(default_factory=dict)
    request: LoggedRequest = field(default_factory=LoggedRequest)
    previous_revision: str = field(default="", name="previousRevision")
    redacted: bool = False
    erased: bool = False
    before_erased: bool = field(default=False, name="beforeErased")
    before: Encoded = UNSET
    after: Encoded = UNSET
    last: Encoded = UNSET

    @property
    def revision(self) -> int:
        return int(self.metadata.name)


class Page(msgspec.Struct):
    """One page of a list. ``metadata.continue_``: "" after the last one."""

    metadata: Name = field(default_factory=Name)
    items: Sequence[LoggedChange] = ()


PAGES: Final = msgspec.json.Decoder(Page)
"""Decodes a page. msgspec.DecodeError: it is not one."""


def decoded(encoded: Encoded, revision: str = "") -> Object | None:
    """Return an object, None if there is none. ``revision``: its resourceVersion, which the log does not store."""
    if encoded is UNSET:
        return None
    obj: Object = orjson.loads(memoryview(encoded))
    if revision:
        obj.setdefault("metadata", {})["resourceVersion"] = revision
    return obj


def group_of(change: LoggedChange) -> str:
    """Return the API group of the object, "" if the change has no object."""
    for encoded in (change.after, change.last, change.before):
        if encoded is not UNSET:
            version = msgspec.json.decode(encoded, type=_Versioned).api_version
            return version.rpartition("/")[0]
    return ""


class _Versioned(msgspec.Struct):
    api_version: str = field(default="", name="apiVersion")


class DeletionFields(msgspec.Struct, gc=False):
    """The fields of an object that tell of its deletion, as JSON."""

    deletion_timestamp: Encoded = field(default=UNSET, name="deletionTimestamp")
    finalizers: list[str] = field(default_factory=list)


class _Marked(msgspec.Struct, gc=False):
    metadata: DeletionFields = field(default_factory=DeletionFields)


_ABSENT: Final = DeletionFields()


def deletion_fields(encoded: Encoded) -> DeletionFields:
    """Return the fields of an object in JSON; of none, as if it had no mark and no finalizers."""
    return _ABSENT if encoded is UNSET else msgspec.json.decode(encoded, type=_Marked).metadata


def marks(before: DeletionFields, after: DeletionFields) -> bool:
    """Tell whether an update marked its object for deletion."""
    mark = after.deletion_timestamp
    return mark is not UNSET and (before.deletion_timestamp is UNSET or bytes(mark) != bytes(before.deletion_timestamp))
