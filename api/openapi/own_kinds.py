"""The descriptions of the kinds kubechronicle has beside Kubernetes', for kubectl explain and generated clients."""

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
    "operation": _text("What was done to the object: Create, Update or Delete.", enum=["Create", "Update", "Delete"]),
    "time": _text("When it was committed, to the microsecond.", format="date-time"),
    "object": _object(
        "Which object was changed.",
        apiVersion=_text("The version it is stored in."),
        kind=_text("Its kind."),
        resource=_text("The plural of its kind, as in URLs."),
        namespace=_text("Its namespace."),
        name=_text("Its name."),
        uid=_text("Its uid: another object of the same name has another."),
    ),
    "version": {"type": "integer", "format": "int64", "description": "How many changes it has seen."},
    "previousRevision": _text("The revision of the state that was replaced; none for a Create."),
    "who": _object(
        "Who asked for the change, as authenticated.",
        username=_text("The user the request counted for."),
        uid=_text("The user's uid."),
        groups=_texts("The user's groups."),
        extra={
            "type": "object",
            "description": "What else the authenticator said of the user.",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        },
        impersonator=_text("The user who made the request in that name."),
        sourceAddress=_text("The address the request came from."),
        userAgent=_text("The client that sent it."),
        fieldManager=_text("Its field manager."),
    ),
    "request": _object(
        "The request that changed it.",
        verb=_text("create, update, patch, delete or deletecollection."),
        uri=_text("Its path and query, without credentials."),
        auditID=_text("Its id, as in the Audit-ID header of the answer."),
    ),
    "changed": _texts("The fields that changed, in words: spec.template.spec.containers[name=web].image."),
    "summary": _text("What changed, from what to what, in one line."),
    "diff": {
        "type": "array",
        "description": "What changed as a JSON patch (RFC 6902) from before to after; old is what was there. "
        "The server's bookkeeping (managedFields) is left out. Lists have it with ?content=diff.",
        "items": _object(
            "One operation.",
            op=_text("add, remove or replace."),
            path=_text("A JSON pointer (RFC 6901)."),
            value={"description": "What is there now."},
            old={"description": "What was there before."},
        ),
    },
    "before": {**_ANY_OBJECT, "description": "The object before the change. Lists have it with ?content=full."},
    "after": {**_ANY_OBJECT, "description": "The object after it. Lists have it with ?content=full."},
    "redacted": {
        "type": "boolean",
        "description": "You may not read the object: that it changed is told, what changed is not.",
    },
    "erased": {
        "type": "boolean",
        "description": "What the object was after the change, and so what changed, was erased from history.",
    },
    "beforeErased": {
        "type": "boolean",
        "description": "What the object was before the change was erased from history; so nobody knows what changed.",
    },
}

OWN_KINDS: Final[Mapping[str, tuple[str, Mapping[str, Schema]]]] = {
    "Revision": (
        "Revision is one change of an object in a namespace, as the log keeps it. Its name is the revision: the number "
        "of the change among all changes of the cluster, which is the resourceVersion the object had after it.",
        _REVISION,
    ),
    "ClusterRevision": ("ClusterRevision is one change of a cluster-scoped object, as the log keeps it.", _REVISION),
}
"""Kind -> its description, and its fields beside apiVersion, kind and metadata."""
