"""Records of the log as the plain values that revision objects are made of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from kubechronicle.api.history import revisions
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
    key, who = record.key, record.who or Who(user="")
    deleted = record.operation is Operation.DELETE
    reference = {"resource": key.resource.partition(".")[0], "name": key.name, "uid": record.uid}
    metadata = {"name": str(record.revision), "resourceVersion": str(record.revision)}
    if key.namespace:
        metadata["namespace"] = reference["namespace"] = key.namespace
    head: dict[str, Any] = {
        "apiVersion": revisions.API_VERSION,
        "kind": "Revision" if key.namespace else "ClusterRevision",
        "metadata": metadata,
        "operation": revisions.OPERATIONS[int(record.operation)],
        "time": record.committed_at,
        "object": reference,
        "version": record.version,
        "who": _who_of(who),
        "request": {"verb": who.verb, "uri": who.request_uri, "auditID": who.audit_id},
    }
    if record.previous_revision:
        head["previousRevision"] = str(record.previous_revision)
    before_erased = before is not None and before.erased
    if record.erased or before_erased:
        head["erased" if record.erased else "beforeErased"] = True
    if problem := problem_of(record, before):
        return orjson.dumps({**head, "redacted": True, "problem": problem}, option=orjson.OPT_UTC_Z)
    parts = [orjson.dumps(head, option=orjson.OPT_UTC_Z)[:-1]]
    if before is not None and not before_erased and not record.erased:
        parts += (b',"before":', before.body)
    if not record.erased:
        parts += (b',"last":' if deleted else b',"after":', record.body)
    return b"".join((*parts, b"}"))


def _who_of(who: Who) -> orjson.Fragment:
    if who.extra:
        return orjson.Fragment(_who_json(who, who.extra))
    return orjson.Fragment(
        _plain_who(
            who.user, who.uid, who.groups, who.impersonator, who.source_address, who.user_agent, who.field_manager
        )
    )


@lru_cache(maxsize=256)
def _plain_who(*fields: Any) -> bytes:
    """Return the JSON of a Who without extra, kept: few clients make most of the changes."""
    user, uid, groups, impersonator, address, agent, manager = fields
    return _who_json(
        Who(
            user=user,
            uid=uid,
            groups=groups,
            impersonator=impersonator,
            source_address=address,
            user_agent=agent,
            field_manager=manager,
        ),
        {},
    )


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
