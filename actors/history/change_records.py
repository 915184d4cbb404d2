"""Records of the log as the plain values that revision objects are made of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec
import orjson
from msgspec import UNSET, UnsetType, field

from kubechronicle.api.history import revisions
from kubechronicle.api.history.revisions import API_VERSION
from kubechronicle.eventlog.records import Operation, Record, Who


def change_of(record: Record, before: Record | None) -> revisions.Change:
    """Return the change that ``record`` made to the object of ``before``."""
    last = orjson.loads(record.body)
    deleted = record.erased or record.operation is Operation.DELETE
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
        after=None if deleted else last,
        last=last if deleted else None,
        erased=record.erased,
        before_erased=before is not None and before.erased,
        labels=_labels_of(last),
        problem=problem_of(record, before),
    )


def problem_of(record: Record, before: Record | None) -> str:
    """Return the reason why a change cannot be shown: one of its objects cannot be decrypted. "": it can."""
    return record.problem or (before.problem if before is not None else "")


def states_json(record: Record, before: Record | None) -> bytes:
    """Return a Revision with its objects as the log holds them, as JSON (``?content=states``, ``?content=after``).

    The objects are not decoded, so that readers of many changes cost little. ``before``, ``after``: the objects before
    and after a creation or update. A deletion has ``before``, and ``last``: the object as it was deleted. Nothing is
    compared: there are no differences, labels or kinds beside the objects. With an object that cannot be decrypted, the
    change is redacted.
    """
    key, who = record.key, record.who or _NOBODY
    number, namespace = str(record.revision), key.namespace or UNSET
    erased, before_erased = record.erased, before is not None and before.erased
    head = _Head(
        API_VERSION,
        "ClusterRevision" if namespace is UNSET else "Revision",
        _Metadata(number, number, namespace),
        revisions.OPERATIONS[record.operation],
        record.committed_at,
        _Reference(key.resource.partition(".")[0], key.name, record.uid, namespace),
        record.version,
        _who_of(who),
        _Request(who.verb, who.request_uri, who.audit_id),
        str(record.previous_revision) if record.previous_revision else UNSET,
        erased or UNSET,
        (before_erased and not erased) or UNSET,
    )
    if problem := problem_of(record, before):
        head.redacted, head.problem = True, problem
        return _encoded(head)
    parts = [_encoded(head)[:-1]]
    if before is not None and not before_erased and not erased:
        parts += (b',"before":', before.body)
    if not erased:
        parts += (b',"last":' if record.operation is Operation.DELETE else b',"after":', record.body)
    parts.append(b"}")
    return b"".join(parts)


class _Metadata(msgspec.Struct, gc=False):
    name: str
    resource_version: str = field(name="resourceVersion")
    namespace: str | UnsetType


class _Reference(msgspec.Struct, gc=False):
    resource: str
    name: str
    uid: str
    namespace: str | UnsetType


class _Request(msgspec.Struct, gc=False):
    verb: str
    uri: str
    audit_id: str = field(name="auditID")


class _Head(msgspec.Struct, rename="camel", gc=False):
    """A Revision without its objects. Such a record is encoded sooner than dictionaries are made."""

    api_version: str
    kind: str
    metadata: _Metadata
    operation: str
    time: datetime
    object: _Reference
    version: int
    who: msgspec.Raw
    request: _Request
    previous_revision: str | UnsetType
    erased: bool | UnsetType
    before_erased: bool | UnsetType
    redacted: bool | UnsetType = UNSET
    problem: str | UnsetType = UNSET


_encoded: Final = msgspec.json.Encoder().encode
_NOBODY: Final = Who(user="")


def _who_of(who: Who) -> msgspec.Raw:
    if who.extra:
        return msgspec.Raw(_who_json(who, who.extra))
    return _plain_who(
        who.user, who.uid, who.groups, who.impersonator, who.source_address, who.user_agent, who.field_manager
    )


@lru_cache(maxsize=256)
def _plain_who(*fields: Any) -> msgspec.Raw:
    """Return the JSON of a Who without extra, kept: few clients make most of the changes."""
    user, uid, groups, impersonator, address, agent, manager = fields
    who = Who(
        user=user,
        uid=uid,
        groups=groups,
        impersonator=impersonator,
        source_address=address,
        user_agent=agent,
        field_manager=manager,
    )
    return msgspec.Raw(_who_json(who, {}))


def _who_json(who: Who, extra: Mapping[str, Any]) -> bytes:
    found = {
        "username": who.user,
        "uid": who.uid,
        "groups": who.groups,
        "extra": extra,
        "impersonator": who.impersonator,
        "sourceAddress": who.source_address,
        "userAgent": who.user_agent,
        "fieldManager": who.field_manager,
    }
    return orjson.dumps({name: value for name, value in found.items() if value})


def _labels_of(obj: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = obj.get("metadata", {}).get("labels") or {}
    return labels
