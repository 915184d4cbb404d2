"""The objects of a write in the version in which a rule matches it, as webhooks and policies see them.

    request     autoscaling/v1 HorizontalPodAutoscaler   rule: autoscaling/v2   review: kind and objects of v2
    .../scale   the workload in the store                                       review: its Scale

Source: k8s.io/apiserver ``pkg/admission/conversion.go``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson

from kubechronicle.actors.admission.chain import CREATE, UPDATE, AdmissionState, Attributes
from kubechronicle.actors.evaluation import judge_large
from kubechronicle.actors.external_answers import in_steps
from kubechronicle.actors.large_work import LARGE_BYTES
from kubechronicle.api.admission.matching import NAMESPACES, GroupVersionKind, Index, Labels, WriteKind, kind_of
from kubechronicle.api.errors import status
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.pipeline import conversion, custom_scale, pipeline, scale
from kubechronicle.api.registry.registry import ResourceType, body_type
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Who

T = TypeVar("T")

VIEWS: Final = frozenset(("", "status", "scale", "finalize", "approval", "ephemeralcontainers", "resize"))
"""Subresources that are another view of their object."""


def namespace_of(attributes: Attributes) -> str:
    """Return the namespace of the request; a namespace has its own name."""
    if attributes.namespace or attributes.rt.resource != NAMESPACES:
        return attributes.namespace
    return name_of(attributes)


def name_of(attributes: Attributes) -> str:
    """Return the name of the object, also one that was generated; "" for an object of a collection."""
    if attributes.collection:
        return ""
    if attributes.name or attributes.object is None:
        return attributes.name
    name = (attributes.object.get("metadata") or {}).get("name")
    return name if isinstance(name, str) else ""


def write_kind(attributes: Attributes) -> WriteKind:
    """Return the part of the request that rules look at."""
    namespaced = bool(attributes.namespace) or attributes.rt.resource == NAMESPACES
    return WriteKind(attributes.rt, attributes.subresource, attributes.operation, namespaced)


def candidates(index: Index[T], attributes: Attributes, state: AdmissionState) -> Sequence[tuple[T, ResourceType]]:
    """Return the items of an index whose rules match a write. NeedsExternalAnswer: to look at all rules takes long."""
    if not len(index):
        return ()
    kind, registry = write_kind(attributes), state.registry()
    found = index.known(kind, registry)
    return in_steps(("candidates", index, kind), index.search(kind, registry)) if found is None else found


def digest(obj: dict[str, Any], *, any_order: bool = False) -> bytes:
    """Return a digest of an object. ``any_order``: the order of the members is irrelevant, which costs more."""
    values = (obj, obj.scale) if isinstance(obj, scale.Scaled) else obj
    try:
        encoded = orjson.dumps(values, option=orjson.OPT_SORT_KEYS if any_order else None)
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate
        encoded = repr(values).encode(errors="surrogatepass")
    return hashlib.blake2b(encoded, digest_size=20).digest()


def requested_kind(attributes: Attributes, rt: ResourceType) -> GroupVersionKind:
    """Return the kind of the objects of the request, in the version of ``rt``."""
    found = kind_of(rt, attributes.subresource) if attributes.subresource else None
    return found or _kind(rt.group, rt.version, rt.kind)


def _kind(group: str, version: str, kind: str) -> GroupVersionKind:
    return GroupVersionKind(group, version, kind)


def user_of(who: Who) -> Mapping[str, Any]:
    """Return the userInfo of the requester, without its empty members."""
    info = _user(who.user, who.uid, who.groups)
    if not who.extra:
        return info
    return {**info, "extra": {key: list(values) for key, values in sorted(who.extra.items())}}


def _user(user: str, uid: str, groups: tuple[str, ...]) -> Mapping[str, Any]:
    members = {"username": user, "uid": uid, "groups": list(groups)}
    return {name: value for name, value in members.items() if value}


def labels_of(attributes: Attributes, state: AdmissionState) -> Labels:
    """Return the labels that selectors look at."""
    scaled = attributes.subresource == pipeline.SCALE  # a Scale has no labels
    new = None if attributes.object is None else {} if scaled else _labels(attributes.object)
    old = (
        None
        if attributes.old is None or attributes.subresource not in VIEWS
        else {}
        if scaled
        else attributes.old.labels
    )
    return Labels(new, old, _namespace_labels(attributes, state))


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str] | None:
    meta = obj.get("metadata")
    return (meta.get("labels") or {}) if isinstance(meta, dict) else None


def _namespace_labels(attributes: Attributes, state: AdmissionState) -> Any:
    itself = attributes.rt.resource == NAMESPACES
    if not attributes.namespace and not itself:
        return None

    def found() -> Mapping[str, str]:
        if itself and not attributes.subresource and attributes.operation in (CREATE, UPDATE):
            return _labels(attributes.object or {}) or {}
        name = namespace_of(attributes)
        entry = state.peek(NAMESPACES, "", name)
        if entry is None:
            raise status.not_found(NAMESPACES, name)
        return entry.labels

    return found


class Versions:
    """The new and the old object of a write in other versions; each is made once.

    ``stored``: ``attributes.object`` is in the stored version, as validating plugins receive it.
    """

    def __init__(self, attributes: Attributes, *, stored: bool) -> None:
        self._attributes = attributes
        self._stored = stored
        self._new: dict[ResourceType, Object | None] = {}
        self._old: dict[ResourceType, Object | None] = {}

    def new(self, rt: ResourceType) -> Object | None:
        """Return the new object in the version of ``rt``, for reading. StatusError 500: it cannot be converted."""
        if rt not in self._new:
            self._new[rt] = self._converted(rt)
        return self._new[rt]

    def old(self, rt: ResourceType) -> Object | None:
        """Return the old object in the version of ``rt``, for reading. StatusError 500: it cannot be converted."""
        if self._attributes.old is None:
            return None
        if rt not in self._old:
            self._old[rt] = self._former(rt)
        return self._old[rt]

    def changed(self) -> None:
        """Forget the new object, which has changed."""
        self._new.clear()

    def type_of(self, rt: ResourceType) -> ResourceType:
        """Return the type by which objects of the request are decoded in the version of ``rt``."""
        subresource = self._attributes.subresource
        if subresource == pipeline.SCALE:
            return scale.scale_type(rt)
        if subresource in VIEWS:
            return rt
        group, version, kind = requested_kind(self._attributes, rt)
        return body_type(rt, group=group, version=version, kind=kind)

    def replace(self, rt: ResourceType, obj: Object) -> None:
        """Replace the new object by ``obj``, which is in the version of ``rt``, in place. StatusError."""
        attributes = self._attributes
        held = attributes.object
        assert held is not None, "an object was patched"
        if isinstance(held, scale.Scaled):
            held.replace(obj)
            obj = held
        elif attributes.subresource == pipeline.SCALE:
            obj = scale.with_scale(attributes.rt, held, obj)
        elif attributes.subresource in VIEWS:
            obj = _convert_back(attributes.rt, obj, held)
        if obj is not held:
            kept = dict(obj)
            held.clear()
            held.update(kept)
        self.changed()

    def _converted(self, rt: ResourceType) -> Object | None:
        attributes = self._attributes
        obj = attributes.object
        if obj is None:
            return None
        if attributes.subresource not in VIEWS:
            return obj
        if not self._stored and isinstance(obj, scale.Scaled):
            return obj.scale
        stored = self._stored
        if stored and attributes.requested is not None:
            obj, stored = attributes.requested, False
        if self._stored:
            obj = _with_revision(attributes, obj)
        if attributes.subresource == pipeline.SCALE:
            return self._scale(obj, stored=stored)
        if stored:
            obj = _convert(attributes.rt, obj, attributes.rt.api_version)
        return _convert(rt, obj, rt.api_version)

    def _former(self, rt: ResourceType) -> Object | None:
        attributes = self._attributes
        if attributes.old is None or attributes.subresource not in VIEWS:
            return None
        if not self._stored and isinstance(attributes.object, scale.Scaled):
            return attributes.object.before
        old = attributes.old
        if attributes.subresource == pipeline.SCALE:
            return self._scale(old.object(), stored=True)
        return read(rt, old)

    def _scale(self, obj: Object, *, stored: bool) -> Object:
        rt = self._attributes.rt
        if rt.custom is None:
            return scale.scale_of(obj)
        return scale.stored_scale(rt, copy_object(obj)) if stored else custom_scale.scale_of(rt, obj)


def read(rt: ResourceType, entry: Entry) -> Object:
    """Return a stored object in the version of ``rt``, for reading. NeedsThread: it is large."""
    if _is_large(rt, entry):
        return judge_large(("read", rt.api_version, entry.key), entry.revision, _read, rt, entry)
    return _read(rt, entry)


def _read(rt: ResourceType, entry: Entry) -> Object:
    return pipeline.to_request_version(rt, entry.object())


def _is_large(rt: ResourceType, entry: Entry) -> bool:
    """Tell whether an object takes long to read.

    One that a webhook converts does not count: the answers of webhooks are those of an attempt.
    """
    if rt.custom is None:
        return len(entry.json) > LARGE_BYTES
    size: int = rt.custom.storage.schema.size_with_defaults(entry.json)
    return size > LARGE_BYTES and rt.custom.conversion.get("strategy") != "Webhook"


def _with_revision(attributes: Attributes, obj: Object) -> Object:
    """Return an updated object with the resourceVersion that it has until it is stored."""
    old, meta = attributes.old, obj["metadata"]
    if old is None or "resourceVersion" in meta:
        return obj
    return {**obj, "metadata": {**meta, "resourceVersion": str(old.revision)}}


def _convert_back(rt: ResourceType, obj: Object, before: Object) -> Object:
    """Return ``obj`` in the version of ``rt``, with the fields of ``before`` that its own version cannot have.

    kube-apiserver converts into the object before, and so leaves these as they are.
    """
    version, wanted = obj["apiVersion"], rt.api_version
    if version == wanted:
        return obj
    made = _convert(rt, obj, wanted)
    if rt.custom is None:
        _keep_lost(before, _convert(rt, _convert(rt, before, version), wanted), made)
    return made


def _keep_lost(before: Object, returned: Object, made: Object) -> None:
    """Give ``made`` the fields of ``before`` that ``returned``, the same object after both conversions, has lost."""
    for name, value in before.items():
        if value and not returned.get(name):
            made[name] = made.get(name) or value
        elif all(isinstance(each.get(name), dict) for each in (before, returned, made)):
            _keep_lost(value, returned[name], made[name])


def _convert(rt: ResourceType, obj: Object, api_version: str) -> Object:
    if obj["apiVersion"] == api_version:
        return obj
    try:
        if rt.custom is not None:
            return conversion.convert_custom(rt.custom, copy_object(obj), api_version)
        return conversion.convert(obj, api_version)
    except LookupError as error:
        raise status.internal_error(str(error)) from None
