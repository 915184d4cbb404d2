"""Revisions as objects (history.kubechronicle.dev/v1): each describes one change, its user and its differences.

    kubectl get revisions -n shop --field-selector object.kind=Deployment,object.name=web

A Revision is made from a record of the log on request, and stored nowhere. Changes of namespaced objects are
``revisions`` in their namespace, changes of cluster-scoped objects ``clusterrevisions``. A reader without the right to
read the object sees only the time and the user of the change (``redacted``).

Pure: records, and the present time, are plain arguments.

Masks of the values of Secrets, wherever people read history: stars, with a token that tells equal from different.

    data.password: *** (1f0c2a9e) → *** (77ab3d10)

A token is a keyed digest of the value. The reader sends the key with its requests, so that one value has one token in
all answers of one run, and another one in the next run. Nobody can compare tokens with guessed values later: the key is
shown nowhere. Without a key in the request, each answer has a random one.

The constants are the parts of a Secret that hold its values.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from kubechronicle.api.history.differences import changed_fields, differences, has_changed, summary
from kubechronicle.api.history.reasons import change_cause
from kubechronicle.api.history.secret_values import FIELDS, LAST_APPLIED, RESOURCE
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.values.objects import Object

Content: TypeAlias = Literal["", "diff", "full", "states", "after"]

API_VERSION: Final = f"{HISTORY}/v1"
GROUP: Final = HISTORY
OPERATIONS: Final = {1: "Create", 2: "Update", 3: "Delete"}
CONTENTS: Final[tuple[Content, ...]] = ("", "diff", "full", "states", "after")
PLAIN: Final[tuple[Content, ...]] = ("states", "after")
"""Contents that only repeat what the log holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionChange:
    """One change from the log.

    ``operation``: 1 create, 2 update, 3 delete.
    ``before``, ``after``: the stored object, None if absent.
    ``last``: the deleted object of a deletion.
    ``reason``: of the request; "" for none.
    ``cause``: the revision that the change is a consequence of, as its writer recorded it; 0 for none (causes.py).
    ``erased``, ``before_erased``: the contents of the object, or of its former state, were erased.
    ``problem``: the reason why the object, or its former state, cannot be decrypted; "": they can.
    ``database``: the name of the database whose log the revision belongs to; "": the main one.
    """

    revision: int
    time: datetime
    operation: int
    resource: str
    namespace: str
    name: str
    uid: str
    version: int
    previous_revision: int
    who: Mapping[str, Any]
    request: Mapping[str, str]
    reason: str = ""
    cause: int = 0
    before: Object | None = None
    after: Object | None = None
    last: Object | None = None
    erased: bool = False
    before_erased: bool = False
    problem: str = ""
    database: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def written_time(time: datetime) -> str:
    """Return a time in RFC 3339 with microseconds, the log's resolution."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def group_and_plural(resource: str) -> tuple[str, str]:
    """Split ``deployments.apps`` into ("apps", "deployments"); the core group is ""."""
    plural, _, group = resource.partition(".")
    return group, plural


def revision_object(change: RevisionChange, *, content: Content, readable: bool) -> Object:
    """Return the Revision of a change. ``readable``: the reader may read the object."""
    namespaced = bool(change.namespace)
    metadata: Object = {
        "name": str(change.revision),
        "resourceVersion": str(change.revision),
        "creationTimestamp": change.time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if namespaced:
        metadata["namespace"] = change.namespace
    if readable and change.labels:
        metadata["labels"] = dict(change.labels)
    found: Object = {
        "apiVersion": API_VERSION,
        "kind": "Revision" if namespaced else "ClusterRevision",
        "metadata": metadata,
        "operation": OPERATIONS[change.operation],
        "time": written_time(change.time),
        "object": _reference(change),
        "version": change.version,
    }
    if change.database:
        found["database"] = change.database
    if change.last is not None and readable and (marked := change.last.get("metadata", {}).get("deletionTimestamp")):
        found["deletionTimestamp"] = marked
    if change.previous_revision:
        found["previousRevision"] = str(change.previous_revision)
    found["who"] = {name: value for name, value in change.who.items() if value}
    found["request"] = {name: value for name, value in change.request.items() if value}
    if reason := change.reason or (reason_of(change) if readable else ""):
        found["reason"] = reason
    if change.cause:
        found["cause"] = str(change.cause)
    if not readable:
        found["redacted"] = True
        return found
    if change.problem:
        return {**found, "redacted": True, "problem": change.problem}
    if change.erased or change.before_erased:
        found["erased" if change.erased else "beforeErased"] = True
    return {**found, **_contents(change, content)} if not change.erased else found


def reason_of(change: RevisionChange) -> str:
    """Return the reason of the request or, if it has none, the change-cause that the change sets in its object."""
    if change.reason or change.erased or change.problem:
        return change.reason
    if change.operation == 3 or (change.operation == 2 and change.before is None):
        return ""  # the former state is not kept: nobody knows whether the annotation is new
    return change_cause(change.before, change.after)


def _reference(change: RevisionChange) -> Object:
    """Return an extended reference to the changed object."""
    state = change.after or change.last or change.before or {}
    _, plural = group_and_plural(change.resource)
    found: Object = {
        "apiVersion": state.get("apiVersion", ""),
        "kind": state.get("kind", ""),
        "resource": plural,
        "namespace": change.namespace,
        "name": change.name,
        "uid": change.uid,
    }
    return {name: value for name, value in found.items() if value}


def _contents(change: RevisionChange, content: Content) -> Object:
    update = change.operation == 2 and change.before is not None and change.after is not None
    made = differences(change.before or {}, change.after or {}) if update else []
    found: Object = {"changed": changed_fields(made)}
    if update:
        found["summary"] = summary(made)
    if content and update:
        found["diff"] = [one.operation() for one in made]
    if content == "full":
        before = change.before if change.operation != 3 else change.last or change.before
        states = {"before": before, "after": change.after}
        found.update({name: state for name, state in states.items() if state is not None})
    return found


def concerns_field(change: RevisionChange, field: str) -> bool:
    """Return True if a change sets, changes or removes the values at a canonical path (differences.py).

    A creation concerns the fields that the object begins with, a deletion those that it ends with. An update without
    its former state concerns none.
    """
    if change.erased or change.before_erased or change.problem:
        return False
    before, after = change.before, change.after
    if change.operation == 3:
        before, after = change.last or before, None
    elif change.operation == 2 and before is None:
        return False  # the former state is not kept: nobody knows which fields changed
    return has_changed(before or {}, after or {}, field)


# -- field selectors and table cells (printable, as others choose names and values) -------------------------------


def resources_named(registry: Registry, deleted: Iterable[ResourceType], name: str, value: str) -> frozenset[str]:
    """Return the stored resources with this kind, plural (also with its group, or a short name) or apiVersion.

    ``deleted``: types that the registry does not have any more. Upper and lower case are equal, because people type
    kinds.
    """
    wanted, known = value.lower(), [*_known(registry), *deleted]
    return frozenset(rt.resource for rt in known if rt.stored and wanted in _called(rt, name))


def kinds_named(registry: Registry, deleted: Iterable[ResourceType], name: str) -> frozenset[str]:
    """Return all values that ``resources_named`` knows, as they are usually written."""
    types = [rt for rt in (*_known(registry), *deleted) if rt.stored]
    if name == "object.kind":
        return frozenset(rt.kind for rt in types)
    return frozenset(called for rt in types for called in _called(rt, name) if called)


def _known(registry: Registry) -> Sequence[ResourceType]:
    return [rt for stored in registry.stored() for rt in registry.known_as(stored.resource)]


def _called(rt: ResourceType, name: str) -> tuple[str, ...]:
    if name == "object.kind":
        return (rt.kind.lower(),)
    if name == "object.apiVersion":
        return (rt.api_version.lower(),)
    return (rt.plural, rt.group_resource, rt.singular, *rt.short_names)


TOKEN_LENGTH: Final = 8
LONGEST_KEY: Final = 128


def masked_change(change: RevisionChange, key: bytes) -> RevisionChange:
    """Return a change of a Secret without its values, any other change as it is."""
    if change.resource != RESOURCE:
        return change
    before, after, last = (
        masked_secret(each, key) if each is not None else None for each in (change.before, change.after, change.last)
    )
    return replace(change, before=before, after=after, last=last)


def masked_secret(secret: Mapping[str, Any], key: bytes) -> Object:
    """Return a Secret with masks instead of its values."""
    found: Object = dict(secret)
    for part in FIELDS:
        if isinstance(values := found.get(part), dict):
            found[part] = {name: _mask(value, part, name, key) for name, value in values.items()}
    metadata = found.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and isinstance(annotations, dict) and LAST_APPLIED in annotations:
        mask = _mask(annotations[LAST_APPLIED], "annotations", LAST_APPLIED, key)
        found["metadata"] = {**metadata, "annotations": {**annotations, LAST_APPLIED: mask}}
    return found


def _mask(value: Any, field: str, name: str, key: bytes) -> str:
    digest = hmac.new(key, f"{field}/{name}/{value}".encode(errors="surrogatepass"), hashlib.sha256)
    return f"*** ({digest.hexdigest()[:TOKEN_LENGTH]})"
