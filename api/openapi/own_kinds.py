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
    "database": _text(
        "The database whose log the revision belongs to, named by its resources; absent for the main database."
    ),
    "version": {"type": "integer", "format": "int64", "description": "The number of changes of the object so far."},
    "deletionTimestamp": _text(
        "Of a Delete: the time that an earlier request set, which marked the object for deletion. Absent if none did."
    ),
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
    "reason": _text(
        "The reason that the client gave with the request; without one, the change-cause that the change sets in the "
        "object's annotations."
    ),
    "cause": _text(
        "The revision that the change is a consequence of, as its writer recorded it: a loop of the server, or a "
        "client that restores or reverts."
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
    "after": {
        **_ANY_OBJECT,
        "description": "The object after it. Lists have it with ?content=full, states or after; of the last two, "
        "?fields=spec.replicas,metadata.labels has only these fields.",
    },
    "last": {
        **_ANY_OBJECT,
        "description": "The object as it was deleted. Lists have it with ?content=states or after.",
    },
    "verdicts": {
        "type": "array",
        "description": "The policies bound with Audit alone that would have refused the write. Only in lists with "
        "?verdicts=audited, which have no other writes.",
        "items": _object(
            "The verdict of one policy.",
            policy=_text("The name of the ValidatingAdmissionPolicy."),
            binding=_text("The name of its binding."),
            message=_text("The reason."),
            reason=_text("The reason as one word, such as Invalid."),
            error={
                "type": "boolean",
                "description": "The policy could not be evaluated, and its failurePolicy is Fail.",
            },
        ),
    },
    "problem": _text("The reason why the object cannot be decrypted. The revision is redacted then."),
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

_READ: Final[Mapping[str, Schema]] = {
    "time": _text("Time of the request, with microseconds.", format="date-time"),
    "verb": _text("get, list or watch; or the verb of a write that left no change."),
    "form": _text(
        "The contents of the answer: object, metadata or table. dry-run and no-op are writes that left no change.",
        enum=["object", "metadata", "table", "dry-run", "no-op"],
    ),
    "revision": _text("The newest revision that the server had applied."),
    "object": _object(
        "The object that was read. Without a name: all objects of the kind.",
        apiGroup=_text("Its API group."),
        resource=_text("The plural of its kind, as in URLs."),
        subresource=_text("The subresource that was read."),
        namespace=_text("Its namespace."),
        name=_text("Its name."),
    ),
    "who": _object(
        "The user and client of the request.",
        username=_text("The user of the request, after impersonation."),
        uid=_text("The user's uid."),
        groups=_texts("The user's groups."),
        impersonator=_text("The user that impersonated this user."),
        sourceAddress=_text("The source address of the request."),
        userAgent=_text("The User-Agent of the client."),
    ),
    "request": _object(
        "The request.",
        verb=_text("Its verb."),
        uri=_text("Its path and query, without credentials."),
        auditID=_text("Its id, as in the Audit-ID header of the answer."),
    ),
}

_RECORDING: Final[Mapping[str, Schema]] = {
    "server": _text("The server that recorded reads."),
    "since": _text("The beginning of the period.", format="date-time"),
    "until": _text("The last time at which the recording was known to go on.", format="date-time"),
    "lost": {"type": "integer", "format": "int64", "description": "The reads that did not fit into the buffer."},
    "clean": {"type": "boolean", "description": "The server ended the recording in order."},
    "policy": {**_ANY_OBJECT, "description": "The rules that chose the recorded reads."},
}

_OF_OBJECT: Final[Mapping[str, Schema]] = {
    "apiVersion": _text("The version of the object's kind."),
    "kind": _text("The object's kind."),
    "namespace": _text("Its namespace."),
    "name": _text("Its name."),
}
_CHANGE: Final = _object(
    "One change.",
    verb=_text("The kind of change.", enum=["create", "update", "apply", "patch", "delete"]),
    object={**_ANY_OBJECT, "description": "The object to create, to apply, or to replace the present one."},
    **_OF_OBJECT,
    patchType=_text("The form of the patch.", enum=["merge", "json", "strategic"]),
    patch={"description": "The patch."},
    force={"type": "boolean", "description": "An apply takes fields from their owners."},
    preconditions=_object(
        "Conditions of a deletion.",
        uid=_text("The object's uid."),
        resourceVersion=_text("The revision of its last change."),
    ),
    gracePeriodSeconds={"type": "integer", "format": "int64", "description": "As in DeleteOptions."},
    propagationPolicy=_text("As in DeleteOptions."),
    cause=_text("The revision that the change is a consequence of."),
)

_TRANSACTION: Final[Mapping[str, Schema]] = {
    "spec": _object("The changes.", changes={"type": "array", "description": "In their order.", "items": _CHANGE}),
    "status": _object(
        "The result.",
        firstRevision=_text("The lowest revision of the changes; absent if nothing was changed."),
        lastRevision=_text("The highest one."),
        changes={
            "type": "array",
            "description": "The results of the changes, in their order.",
            "items": _object(
                "One result.",
                outcome=_text("The outcome.", enum=["created", "changed", "unchanged", "marked", "deleted"]),
                **_OF_OBJECT,
                uid=_text("The object's uid."),
                resourceVersion=_text("The revision of the change."),
            ),
        },
    ),
}

_BRANCH_CHANGE: Final[Mapping[str, Schema]] = {
    "operation": _text("The difference: Create, Update or Delete.", enum=["Create", "Update", "Delete"]),
    "object": _object(
        "The object.",
        apiVersion=_text("The version of its stored form."),
        kind=_text("Its kind."),
        resource=_text("Its resource, with its group."),
        namespace=_text("Its namespace."),
        name=_text("Its name."),
    ),
    "username": _text("The user of its last change in the branch."),
    "before": {**_ANY_OBJECT, "description": "The object at the base; with ?against=now, in the cluster now."},
    "after": {**_ANY_OBJECT, "description": "The object in the branch."},
}

OWN_KINDS: Final[Mapping[str, tuple[str, Mapping[str, Schema]]]] = {
    "Revision": (
        "Revision is one change of an object in a namespace, as recorded in the log. Its name is the revision: the "
        "number of the change among all changes of the cluster. The object has it as resourceVersion after the change.",
        _REVISION,
    ),
    "Read": ("Read is one recorded read of objects in a namespace. It has no contents.", _READ),
    "ClusterRead": (
        "ClusterRead is one recorded read of a cluster-scoped object, or of objects of all namespaces.",
        _READ,
    ),
    "ReadRecording": (
        "ReadRecording is a period in which a server recorded reads. Outside of them, a missing read says nothing.",
        _RECORDING,
    ),
    "Transaction": (
        "Transaction is a list of changes that are committed together or not at all. It is not stored.",
        _TRANSACTION,
    ),
    "BranchChange": (
        "BranchChange is an object that a branch changed. It is listed below /branch/NAME/ alone. The values of "
        "Secrets are masked.",
        _BRANCH_CHANGE,
    ),
    "ClusterRevision": ("ClusterRevision is one change of a cluster-scoped object, as recorded in the log.", _REVISION),
}
"""Kind -> its description, and its fields beside apiVersion, kind and metadata."""
