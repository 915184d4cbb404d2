"""What field selectors of revisions may name. A table; what each means is history.py's and the log's.

object.kind=Deployment,object.name=web,time.from=2h        the changes of the last two hours
who.username!=system:admin,changed=spec.replicas           who else has set the number of replicas
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
    "who.userAgent": "user_agent",
    "who.sourceAddress": "source_address",
    "who.fieldManager": "field_manager",
    "request.verb": "verb",
    "request.auditID": "audit_id",
}
"""Fields that are columns of the log. A value that ends in * stands for all that begin so."""

KIND_FIELDS: Final = ("object.kind", "object.resource", "object.apiVersion")
"""Which kind of objects: Deployment; deployments, deploy or deployments.apps; apps/v1. In either case."""

BOUNDS: Final = ("revision.from", "revision.to", "time.from", "time.to")
"""The first and the last revision; since when and until when, as a time or as how long ago."""

FIELDS: Final = ("metadata.name", *TEXT_FIELDS, *KIND_FIELDS, *BOUNDS, "operation", "changed")
