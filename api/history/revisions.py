"""Revisions as objects (history.kubechronicle.dev/v1): what one change was, who made it, and what it changed.

    kubectl get revisions -n shop --field-selector object.kind=Deployment,object.name=web

A Revision is made of a record of the log when it is asked for, and kept nowhere. Namespaced objects' changes are
``revisions`` in their namespace, those of cluster-scoped ones ``clusterrevisions``. A reader who may not read the
object itself is told that it changed, when and by whom, and no more (``redacted``).

Pure: records come as plain values, and what time it is with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from kubechronicle.api.history.differences import changed_fields, differences, is_within, shown_value, summary
from kubechronicle.api.registry.registry import Registry, ResourceType
from kubechronicle.api.registry.resources import HISTORY
from kubechronicle.api.values.objects import Object

Content: TypeAlias = Literal["", "diff", "full"]

API_VERSION: Final = f"{HISTORY}/v1"
GROUP: Final = HISTORY
OPERATIONS: Final = {1: "Create", 2: "Update", 3: "Delete"}
CONTENTS: Final[tuple[Content, ...]] = ("", "diff", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change as the log tells it. ``operation`` 1 create, 2 update, 3 delete; ``before`` and ``after`` are the
    object as it is stored, None where it was not there; of a deletion ``last`` is what was deleted. ``erased``,
    ``before_erased``: nothing but what kind it was is left of the object, of that before."""

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
    before: Object | None = None
    after: Object | None = None
    last: Object | None = None
    erased: bool = False
    before_erased: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def written_time(time: datetime) -> str:
    """RFC 3339 with microseconds, as the log keeps them."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def group_and_plural(resource: str) -> tuple[str, str]:
    """``deployments.apps`` to ("apps", "deployments"); of the core group the group is ""."""
    plural, _, group = resource.partition(".")
    return group, plural


def revision_object(change: Change, *, content: Content, readable: bool) -> Object:
    """The Revision of a change. ``readable``: whether the reader may read the object."""
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
    if change.previous_revision:
        found["previousRevision"] = str(change.previous_revision)
    found["who"] = {name: value for name, value in change.who.items() if value}
    found["request"] = {name: value for name, value in change.request.items() if value}
    if not readable:
        found["redacted"] = True
        return found
    if change.erased or change.before_erased:
        found["erased" if change.erased else "beforeErased"] = True
    return {**found, **_contents(change, content)} if not change.erased else found


def _reference(change: Change) -> Object:
    """Which object changed: a reference that says more than most."""
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


def _contents(change: Change, content: Content) -> Object:
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


def concerns_field(revision: Object, asked: str) -> bool:
    """Whether the change was of the field, or of what is in it. Creations and deletions are of every field."""
    if revision.get("redacted") or revision.get("erased"):
        return False
    if revision["operation"] != "Update":
        return True
    return any(is_within(name, asked) for name in revision["changed"])


# -- what field selectors name ----------------------------------------------------------------------------------------


def resources_named(registry: Registry, name: str, value: str) -> frozenset[str]:
    """The stored resources whose objects have this kind, plural (also with its group, or a short name) or apiVersion.
    Kinds are found in either case: people type them."""
    wanted = value.lower()
    return frozenset(rt.resource for rt in _known(registry) if rt.stored and wanted in _called(rt, name))


def _known(registry: Registry) -> Sequence[ResourceType]:
    return [rt for stored in registry.stored() for rt in registry.known_as(stored.resource)]


def _called(rt: ResourceType, name: str) -> tuple[str, ...]:
    if name == "object.kind":
        return (rt.kind.lower(),)
    if name == "object.apiVersion":
        return (rt.api_version.lower(),)
    return (rt.plural, rt.group_resource, rt.singular, *rt.short_names)


LEFT_OUT: Final = "left out: what they were was erased from history"
"""What a list of the past warns of; before it, how many and of which resource."""


def changed_cell(revision: Mapping[str, Any]) -> str:
    """The last column of a table: in few words, what a change was."""
    if revision.get("redacted"):
        return "<not yours to read>"
    if revision.get("erased"):
        return "<erased>"
    if revision["operation"] != "Update":
        return f"<{revision['operation'].lower()}d>"
    if revision.get("beforeErased"):
        return "<what was before is erased>"
    return revision.get("summary") or "<nothing but bookkeeping>"


def object_cell(revision: Mapping[str, Any]) -> str:
    """TYPE/NAME as kubectl writes it."""
    of = revision["object"]
    group = of.get("apiVersion", "").rpartition("/")[0]
    kind = of.get("resource", "")
    return f"{kind}.{group}/{of.get('name', '')}" if group else f"{kind}/{of.get('name', '')}"


def user_cell(revision: Mapping[str, Any]) -> str:
    """Who it was; with in whose name if in another's."""
    who = revision["who"]
    name, impersonator = who.get("username", ""), who.get("impersonator", "")
    return shown_value(f"{name} (by {impersonator})" if impersonator else name) if name else "<unknown>"
