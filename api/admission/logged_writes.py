"""Writes of the log as admission saw them: from a Revision with its objects (``?content=states``) to a Write.

    verb of the request     change in the log     operation     object     old object
    create, update, patch   Create                CREATE        after      none
    update, patch           Update                UPDATE        after      before
    delete                  Update, Delete        DELETE        none       before
    update, patch           Delete                UPDATE        last       before      the last finalizer was removed

The log holds objects after admission, so a Write has the object as it was stored. The log has no refused requests, no
dry runs, and no bodies of requests such as an eviction, which change another object than they send.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kubechronicle.api.admission.matching import NAMESPACES, Labels, WriteKind, kind_of
from kubechronicle.api.errors import status
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.meta.options import sent_write_options
from kubechronicle.api.meta.request_info import Query, RequestInfo, resolve
from kubechronicle.api.pipeline import conversion, custom_versions, pipeline, scale
from kubechronicle.api.registry.registry import Registry, ResourceType, body_type
from kubechronicle.api.values.objects import Object, ReadOnlyObject

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"

VIEWS: Final = frozenset(("", "status", "scale", "finalize", "approval", "ephemeralcontainers", "resize"))
"""Subresources that are another view of their object."""

OPTIONS: Final = {CREATE: "CreateOptions", UPDATE: "UpdateOptions", DELETE: "DeleteOptions"}

COMPANION: Final = "changes made by the server beside a request for another object"
BODYLESS: Final = "requests whose body the log does not hold, such as evictions and bindings"
UNREADABLE: Final = "changes of objects that you may not read"
ERASED: Final = "changes whose contents were erased from history"
UNKNOWN: Final = "changes of resources that are not served any more"


class NotReplayed(Exception):
    """A change that cannot be judged. The text is one of the reasons above."""


@dataclass(eq=False)
class Write:
    """One write of the log.

    ``object``, ``old``: as stored, None if absent.
    ``collection``: the object was deleted as one of a collection.
    """

    revision: int
    time: str
    rt: ResourceType
    subresource: str
    operation: str
    namespace: str
    name: str
    object: Object | None
    old: Object | None
    who: Mapping[str, Any]
    request: Mapping[str, str]
    options: ReadOnlyObject
    collection: bool = False
    _new: dict[ResourceType, Object | None] = field(default_factory=dict)
    _former: dict[ResourceType, Object | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        namespaced = bool(self.namespace) or self.rt.resource == NAMESPACES
        self.kind = WriteKind(self.rt, self.subresource, self.operation, namespaced)
        """The part of the request that rules look at."""

    @property
    def named(self) -> str:
        """The object's name as policies see it: "" for one of a deleted collection."""
        return "" if self.collection else self.name

    @property
    def request_namespace(self) -> str:
        """The namespace of the request; a namespace has its own name."""
        return self.named if self.rt.resource == NAMESPACES else self.namespace

    def user(self) -> dict[str, Any]:
        """Return the userInfo, without empty members."""
        names = ("username", "uid", "groups", "extra")
        return {name: self.who[name] for name in names if self.who.get(name)}

    def new(self, rt: ResourceType) -> Object | None:
        """Return the new object in the version of ``rt``, for reading. StatusError 500: it cannot be converted."""
        if rt not in self._new:
            self._new[rt] = None if self.object is None else self._seen(self.object, rt)
        return self._new[rt]

    def former(self, rt: ResourceType) -> Object | None:
        """Return the old object in the version of ``rt``, for reading. StatusError 500: it cannot be converted."""
        if rt not in self._former:
            self._former[rt] = None if self.old is None else self._seen(self.old, rt)
        return self._former[rt]

    def decoded_as(self, rt: ResourceType) -> ResourceType:
        """Return the type by which the objects of the request are decoded in the version of ``rt``."""
        if self.subresource == pipeline.SCALE:
            return scale.scale_type(rt)
        if self.subresource in VIEWS:
            return rt
        group, version, kind = kind_of(rt, self.subresource) or (rt.group, rt.version, rt.kind)
        return body_type(rt, group=group, version=version, kind=kind)

    def replace(self, rt: ResourceType, obj: Object) -> None:
        """Replace the new object by a mutated one, in the version of ``rt``. StatusError."""
        assert self.object is not None, "an object was mutated"
        if self.subresource == pipeline.SCALE:
            obj = scale.with_scale(self.rt, self.object, obj)
        self.object = obj
        self._new.clear()

    def _seen(self, obj: Object, rt: ResourceType) -> Object:
        if self.subresource == pipeline.SCALE:
            return scale.scale_of(obj) if self.rt.custom is None else scale.stored_scale(self.rt, copy_object(obj))
        if rt.custom is None:
            return obj if obj["apiVersion"] == rt.api_version else _converted(obj, rt)
        return custom_versions.read(rt, copy_object(obj))

    def labels(self, namespace_labels: Any) -> Labels:
        """Return the labels that selectors look at. ``namespace_labels``: (name) -> labels, may raise StatusError."""
        scaled = self.subresource == pipeline.SCALE  # a Scale has no labels
        new, old = (None if obj is None else {} if scaled else labels_in(obj) for obj in (self.object, self.old))
        itself = self.rt.resource == NAMESPACES
        if not self.namespace and not itself:
            return Labels(new, old, None)
        if itself and not self.subresource and self.operation in (CREATE, UPDATE):
            return Labels(new, old, lambda: new or {})
        return Labels(new, old, lambda: namespace_labels(self.request_namespace))


def labels_in(obj: ReadOnlyObject) -> Mapping[str, str]:
    """Return the labels of an object."""
    return (obj.get("metadata") or {}).get("labels") or {}


def _converted(obj: Object, rt: ResourceType) -> Object:
    try:
        return conversion.convert(obj, rt.api_version)
    except LookupError as error:
        raise status.internal_error(str(error)) from None


def write_of(revision: ReadOnlyObject, resource: str, registry: Registry) -> Write:
    """Return the write that a Revision with its objects records. NotReplayed.

    ``resource``: the stored resource, such as ``deployments.apps``.
    """
    if revision.get("redacted"):
        raise NotReplayed(UNREADABLE)
    request, reference = revision.get("request") or {}, revision["object"]
    path, _, query = (request.get("uri") or "").partition("?")
    stored = registry.storage(resource)
    if stored is None:
        raise NotReplayed(UNKNOWN)
    info = resolve("GET", path, Query(query))
    rt, subresource = _requested(info, stored, registry), info.subresource
    if rt is None:
        rt, subresource = stored, ""
    if subresource not in VIEWS:
        raise NotReplayed(BODYLESS)
    operation, obj, old = _operation(revision, request.get("verb", ""))
    if revision.get("erased") or (revision.get("beforeErased") and operation != CREATE):
        raise NotReplayed(ERASED)
    if (obj is None and old is None) or (old is None and operation != CREATE):
        raise NotReplayed(ERASED)
    previous = revision.get("previousRevision")
    for each in (obj, old):
        if each is not None and previous and operation != CREATE:
            each["metadata"]["resourceVersion"] = previous
    sent = sent_write_options(Query(query).as_dict()) if query and operation != DELETE else {}
    return Write(
        revision=int(revision["metadata"]["name"]),
        time=revision["time"],
        rt=rt,
        subresource=subresource,
        operation=operation,
        namespace=reference.get("namespace", ""),
        name=reference["name"],
        object=obj,
        old=old,
        who=revision.get("who") or {},
        request=request,
        options={"kind": OPTIONS[operation], "apiVersion": "meta.k8s.io/v1", **sent},
        collection=request.get("verb") == "deletecollection",
    )


def _requested(info: RequestInfo, stored: ResourceType, registry: Registry) -> ResourceType | None:
    """Return the type of the request, None if its path tells nothing. NotReplayed: it is about another resource."""
    if not info.is_resource:
        return None
    rt = registry.known(info.group, info.version, info.resource)
    if rt is not None and rt.resource != stored.resource:
        raise NotReplayed(COMPANION)
    return rt


def _operation(revision: ReadOnlyObject, verb: str) -> tuple[str, Object | None, Object | None]:
    """Return the operation of a change with its new and old object."""
    change, before = revision["operation"], revision.get("before")
    if change == "Create":
        return CREATE, revision.get("after"), None
    if verb in ("delete", "deletecollection") or (change == "Delete" and verb not in ("update", "patch")):
        return DELETE, None, before or revision.get("last")
    return UPDATE, revision.get("after") or revision.get("last"), before


def decision_values(write: Write) -> dict[str, Any]:
    """Return the fields of a policy's Request (policy_values.py) that a write has."""
    return {
        "rt": write.rt,
        "subresource": write.subresource,
        "operation": write.operation,
        "name": write.named,
        "namespace": write.request_namespace,
        "dry_run": False,
        "user": write.user(),
        "options": write.options,
    }
