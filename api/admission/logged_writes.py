"""Writes of the log as admission saw them: from a LoggedChange to a Write.

    verb of the request     change in the log     operation     object     old object
    create, update, patch   Create                CREATE        after      none
    update, patch           Update                UPDATE        after      before
    delete                  Update, Delete        DELETE        none       before
    update, patch           Delete                UPDATE        last       before      the last finalizer was removed
    transaction             any                   as its objects tell (api/history/cells.py)

The log holds objects after admission, so a Write has the object as it was stored. The log has no refused requests, no
dry runs, and no bodies of requests such as an eviction, which change another object than they send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from msgspec import UNSET

from kubechronicle.api.admission.logged_changes import (
    Encoded,
    LoggedChange,
    LoggedRequest,
    decoded,
    deletion_fields,
    marks,
)
from kubechronicle.api.admission.matching import NAMESPACES, Labels, WriteKind, kind_of
from kubechronicle.api.errors import status
from kubechronicle.api.history.cells import TRANSACTION, is_deletion
from kubechronicle.api.history.transactions import KIND as TRANSACTION_KIND
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.meta.options import sent_write_options
from kubechronicle.api.meta.request_info import Query, RequestInfo, resolve
from kubechronicle.api.pipeline import conversion, pipeline, scale
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.registry.registry import Registry, ResourceType, body_type
from kubechronicle.api.values.objects import Object, ReadOnlyObject

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"

VIEWS: Final = frozenset(("", "status", "scale", "finalize", "approval", "ephemeralcontainers", "resize"))
"""Subresources that are another view of their object."""

SHAPES_KEPT: Final = 4096
"""Shapes of requests, and their options, that are kept."""

OPTIONS: Final = {CREATE: "CreateOptions", UPDATE: "UpdateOptions", DELETE: "DeleteOptions"}

BESIDE: Final = frozenset(("resourcequotas", "ipaddresses.networking.k8s.io", "endpoints"))
"""Resources whose changes in a Transaction may be the server's own: nothing tells them from those of the user."""

K = TypeVar("K")
V = TypeVar("V")

COMPANION: Final = "changes made by the server beside a request for another object"
BODYLESS: Final = "requests whose body the log does not hold, such as evictions and bindings"
UNREADABLE: Final = "changes of objects that you may not read"
ERASED: Final = "changes whose contents were erased from history"
UNKNOWN: Final = "changes of resources that are not served any more"


class NotReplayed(Exception):
    """A change that cannot be judged. The text is one of the reasons above."""


class Write:
    """One write of the log.

    ``collection``: the object was deleted as one of a collection.
    """

    __slots__ = (
        "_change",
        "_former",
        "_made",
        "_new",
        "_old",
        "collection",
        "encoded_new",
        "encoded_old",
        "kind",
        "name",
        "namespace",
        "options",
        "replaced",
    )

    def __init__(
        self, change: LoggedChange, kind: WriteKind, new: Encoded, old: Encoded, options: ReadOnlyObject
    ) -> None:
        self._change = change
        self.kind = kind
        """The part of the request that rules look at."""
        self.namespace = change.object.namespace
        self.name = change.object.name
        self.options = options
        self.collection = change.request.verb == "deletecollection"
        self.encoded_new, self.encoded_old = new, old
        """The objects as JSON, as they were read."""
        self.replaced = False
        """The new object was replaced by a mutated one."""
        self._new: Object | None = None
        self._old: Object | None = None
        self._made: dict[ResourceType, Object | None] | None = None
        self._former: dict[ResourceType, Object | None] | None = None

    @property
    def revision(self) -> int:
        return self._change.revision

    @property
    def time(self) -> str:
        return self._change.time

    @property
    def who(self) -> Mapping[str, Any]:
        """The user, as the Revision has it."""
        return self._change.who

    @property
    def request(self) -> LoggedRequest:
        return self._change.request

    @property
    def rt(self) -> ResourceType:
        """The resource, in the version of the request."""
        return self.kind.type

    @property
    def subresource(self) -> str:
        return self.kind.subresource

    @property
    def operation(self) -> str:
        return self.kind.operation

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

    # -- objects ------------------------------------------------------------------------------------------------------

    @property
    def object(self) -> Object | None:
        """The new object as stored, None if there is none. Decoded at the first use."""
        if self._new is None:
            self._new = decoded(self.encoded_new, self._revision_before())
        return self._new

    @property
    def old(self) -> Object | None:
        """The old object as stored, None if there is none, or it was not read. Decoded at the first use."""
        if self._old is None:
            self._old = decoded(self.encoded_old, self._revision_before())
        return self._old

    def _revision_before(self) -> str:
        """Return the resourceVersion of both objects: the new one has no other before it is stored."""
        return "" if self.operation == CREATE else self._change.previous_revision

    def new(self, rt: ResourceType) -> Object | None:
        """Return the new object in the version of ``rt``, for reading. StatusError 500: it cannot be converted."""
        obj = self.object
        if obj is None or self._is_stored_form(obj, rt):
            return obj
        if self._made is None:
            self._made = {}
        if rt not in self._made:
            self._made[rt] = self._seen(obj, rt)
        return self._made[rt]

    def former(self, rt: ResourceType) -> Object | None:
        """Return the old object in the version of ``rt``, for reading. StatusError 500: it cannot be converted."""
        obj = self.old
        if obj is None or self._is_stored_form(obj, rt):
            return obj
        if self._former is None:
            self._former = {}
        if rt not in self._former:
            self._former[rt] = self._seen(obj, rt)
        return self._former[rt]

    def _is_stored_form(self, obj: ReadOnlyObject, rt: ResourceType) -> bool:
        return rt.custom is None and obj["apiVersion"] == rt.api_version and self.subresource != pipeline.SCALE

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
        self._new, self.replaced = obj, True
        self._made = None

    def _seen(self, obj: Object, rt: ResourceType) -> Object:
        if self.subresource == pipeline.SCALE:
            return scale.scale_of(obj) if self.rt.custom is None else scale.stored_scale(self.rt, copy_object(obj))
        if rt.custom is None:
            return _converted(obj, rt)
        return conversion.read(rt, copy_object(obj))

    def labels(self, namespace_labels: Callable[[str], Mapping[str, str]], *, objects: bool = True) -> Labels:
        """Return the labels that selectors look at.

        ``namespace_labels``: (name) -> labels, may raise StatusError. ``objects``: those of objects are needed, too.
        """
        itself = self.rt.resource == NAMESPACES
        new = old = None
        if objects or itself:
            scaled = self.subresource == pipeline.SCALE  # a Scale has no labels
            new, old = (None if obj is None else {} if scaled else labels_in(obj) for obj in (self.object, self.old))
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


class LoggedWrites:
    """The writes that changes record. ``old_read``: changes have the objects before them.

    Facts of the request alone are found once for all requests of a shape: the requests
    ``PUT /api/v1/namespaces/a/pods/x`` and ``.../pods/y`` have one.
    """

    def __init__(self, registry: Registry, *, old_read: bool = True) -> None:
        self._registry = registry
        self._old_read = old_read
        self._shapes: dict[tuple[str, str, str, str], tuple[ResourceType, str] | str] = {}
        self._kinds: dict[tuple[ResourceType, str, str, bool], WriteKind] = {}
        self._options: dict[tuple[str, str], ReadOnlyObject] = {}

    def write_of(self, change: LoggedChange, resource: str) -> Write:
        """Return the write that a change records. NotReplayed.

        ``resource``: the stored resource, such as ``deployments.apps``.
        """
        if change.redacted:
            raise NotReplayed(UNREADABLE)
        path, _, query = change.request.uri.partition("?")
        rt, subresource = self._requested(resource, path, change.object.name)
        operation, new, old = _operation(change)
        if change.erased or (change.before_erased and operation != CREATE and self._old_read):
            raise NotReplayed(ERASED)
        if new is UNSET and old is UNSET and (self._old_read or operation != DELETE):
            raise NotReplayed(ERASED)
        if old is UNSET and operation != CREATE and self._old_read:
            raise NotReplayed(ERASED)
        namespaced = bool(change.object.namespace) or rt.resource == NAMESPACES
        kind = self._kind(rt, subresource, operation, namespaced)
        return Write(change, kind, new, old, self._options_of(operation, query))

    def _requested(self, resource: str, path: str, name: str) -> tuple[ResourceType, str]:
        """Return the type and the subresource of a request. NotReplayed: a request that cannot be judged."""
        head, middle, tail = path, "", ""
        if name:
            if path.endswith(f"/{name}"):
                head, middle = path[: -len(name)], name
            else:
                head, middle, tail = path.rpartition(f"/{name}/")
                if not middle:
                    head, tail = path, ""
        shape = (resource, head, "*" if middle else "", tail)
        found = self._shapes.get(shape)
        if found is None:
            info = resolve("GET", path, Query(""))
            found = self._resolved(resource, info)
            if middle and info.name != name:
                # The name stands in another place, as in a request for all pods of the namespace "pods".
                shape = (resource, path, "", "")
            _keep(self._shapes, shape, found)
        if isinstance(found, str):
            raise NotReplayed(found)
        return found

    def _resolved(self, resource: str, info: RequestInfo) -> tuple[ResourceType, str] | str:
        """Return the type and the subresource of a request, or the reason why it cannot be judged."""
        stored = self._registry.storage(resource)
        if stored is None:
            return UNKNOWN
        rt = self._registry.known(info.group, info.version, info.resource) if info.is_resource else None
        if rt is None:  # the path tells nothing
            return stored, ""
        if rt.kind == TRANSACTION_KIND and rt.group == HISTORY and stored.resource not in BESIDE:
            return stored, ""
        if rt.resource != stored.resource:
            return COMPANION
        return (rt, info.subresource) if info.subresource in VIEWS else BODYLESS

    def _kind(self, rt: ResourceType, subresource: str, operation: str, namespaced: bool) -> WriteKind:
        key = (rt, subresource, operation, namespaced)
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = WriteKind(*key)
        return found

    def _options_of(self, operation: str, query: str) -> ReadOnlyObject:
        key = (operation, query)
        found = self._options.get(key)
        if found is None:
            sent = sent_write_options(Query(query).as_dict()) if query and operation != DELETE else {}
            found = {"kind": OPTIONS[operation], "apiVersion": "meta.k8s.io/v1", **sent}
            _keep(self._options, key, found)
        return found


def _keep(kept: dict[K, V], key: K, value: V) -> None:
    if len(kept) >= SHAPES_KEPT:
        kept.clear()
    kept[key] = value


def _operation(change: LoggedChange) -> tuple[str, Encoded, Encoded]:
    """Return the operation of a change with its new and old object. Without the old one, a change of a Transaction to
    an object that is marked already looks like the mark."""
    if change.operation == "Create":
        return CREATE, change.after, UNSET
    verb, marked, freed = change.request.verb, False, False
    if verb == TRANSACTION:
        before = deletion_fields(change.before)
        marked, freed = marks(before, deletion_fields(change.after)), bool(before.finalizers)
    if is_deletion(verb=verb, operation=change.operation, marks=marked, freed=freed):
        return DELETE, UNSET, change.last if change.before is UNSET else change.before
    return UPDATE, change.last if change.after is UNSET else change.after, change.before


def decision_values(write: Write) -> dict[str, Any]:
    """Return the fields of a policy's Request (policy_sources.py) that a write has."""
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
