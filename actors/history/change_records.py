"""Records of the log as the plain values that revision objects are made of."""

from __future__ import annotations

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
    )


def _labels_of(obj: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = obj.get("metadata", {}).get("labels") or {}
    return labels
