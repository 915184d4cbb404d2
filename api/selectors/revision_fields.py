"""The selectable fields of revisions, as a table. api/history and the log give them their meaning.

object.kind=Deployment,object.name=web,time.from=2h        changes of the last two hours
who.actor=jane,noise=hidden                                jane's changes, as herself or as another user
who.username!=system:admin,changed=spec.replicas           changes of the number of replicas by other users
cause=4711                                                 changes with this recorded cause, its consequences
reason=ticket 42                                           changes with this text in their reason, in any case
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TEXT_FIELDS: Final[Mapping[str, str]] = {
    "metadata.namespace": "namespace",
    "object.namespace": "namespace",
    "object.name": "name",
    "object.uid": "uid",
    "who.username": "user_name",
    "who.impersonator": "impersonator",
    "who.actor": "actor",
    "who.userAgent": "user_agent",
    "who.sourceAddress": "source_address",
    "who.fieldManager": "field_manager",
    "request.verb": "verb",
    "request.subresource": "subresource",
    "request.auditID": "audit_id",
}
"""Fields that are columns of the log. A value that ends in * is a prefix. The actor is the user or its impersonator."""

KIND_FIELDS: Final = ("object.kind", "object.resource", "object.apiVersion")
"""The kind of objects: Deployment; deployments, deploy or deployments.apps; apps/v1. Upper or lower case."""

BOUNDS: Final = ("revision.from", "revision.after", "revision.to", "time.from", "time.to")
"""The first revision, or the one before it, and the last one; the first and last time, absolute or as an age."""

REASON: Final = "reason"
CAUSE: Final = "cause"

FIELDS: Final = ("metadata.name", *TEXT_FIELDS, *KIND_FIELDS, *BOUNDS, "operation", "changed", "noise", REASON, CAUSE)
