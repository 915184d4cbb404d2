"""Descriptions of kubechronicle's own kinds, for kubectl explain and generated clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Schema = Mapping[str, Any]


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


def _object(description: str, **properties: Schema) -> Schema:
    return {"type": "object", "description": description, "properties": properties}


def _texts(description: str) -> Schema:
    return {"type": "array", "description": description, "items": {"type": "string"}}


_ANY_OBJECT: Final = {"type": "object"}

_REVISION: Final[Mapping[str, Schema]] = {
    "operation": _text("The kind of change: Create, Update or Delete.", enum=["Create", "Update", "Delete"]),
    "time": _text("Time of the commit, with microseconds.", format="date-time"),
    "object": _object(
        "The changed object.",
        apiVersion=_text("The version of its stored form."),
        kind=_text("Its kind."),
        resource=_text("The plural of its kind, as in URLs."),
        namespace=_text("Its namespace."),
        name=_text("Its name."),
        uid=_text("Its uid, which differs from that of a later object with the same name."),
    ),
    "version": {"type": "integer", "format": "int64", "description": "The number of changes of the object so far."},
    "previousRevision": _text("The revision of the replaced state; absent for a Create."),
    "who": _object(
        "The authenticated user and client of the change.",
        username=_text("The user of the request, after impersonation."),
        uid=_text("The user's uid."),
        groups=_texts("The user's groups."),
        extra={
            "type": "object",
            "description": "Further attributes of the user from the authenticator.",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        },
        impersonator=_text("The user that impersonated this user."),
        sourceAddress=_text("The source address of the request."),
        userAgent=_text("The User-Agent of the client."),
        fieldManager=_text("Its field manager."),
    ),
    "request": _object(
        "The request that made the change.",
        verb=_text("create, update, patch, delete or deletecollection."),
        uri=_text("Its path and query, without credentials."),
        auditID=_text("Its id, as in the Audit-ID header of the answer."),
    ),
    "changed": _texts("The paths of changed fields: spec.template.spec.containers[name=web].image."),
    "summary": _text("The changes, with old and new values, in one line."),
    "diff": {
        "type": "array",
        "description": "The change as a JSON patch (RFC 6902) from before to after, with the old values. "
        "Without the server's bookkeeping (managedFields). Lists have it with ?content=diff.",
        "items": _object(
            "One operation.",
            op=_text("add, remove or replace."),
            path=_text("A JSON pointer (RFC 6901)."),
            value={"description": "The new value."},
            old={"description": "The old value."},
        ),
    },
    "before": {
        **_ANY_OBJECT,
        "description": "The object before the change. Lists have it with ?content=full or states.",
    },
    "after": {**_ANY_OBJECT, "description": "The object after it. Lists have it with ?content=full or states."},
    "last": {**_ANY_OBJECT, "description": "The object as it was deleted. Lists have it with ?content=states or after."},
    "redacted": {
        "type": "boolean",
        "description": "You may not read the object: the change is listed without its content.",
    },
    "erased": {
        "type": "boolean",
        "description": "The object's state after the change was erased from history, and with it the difference.",
    },
    "beforeErased": {
        "type": "boolean",
        "description": "The object's state before the change was erased from history, so the difference is unknown.",
    },
}

OWN_KINDS: Final[Mapping[str, tuple[str, Mapping[str, Schema]]]] = {
    "Revision": (
        "Revision is one change of an object in a namespace, as recorded in the log. Its name is the revision: the "
        "number of the change among all changes of the cluster. The object has it as resourceVersion after the change.",
        _REVISION,
    ),
    "ClusterRevision": ("ClusterRevision is one change of a cluster-scoped object, as recorded in the log.", _REVISION),
}
"""Kind -> its description, and its fields beside apiVersion, kind and metadata."""
