"""The subresource scale: the Scale of a workload, and the workload with a changed Scale.

Pure. Managers of the workload's replicas are those of the Scale. A write of the Scale changes these; then they are put
back into the workload, after apimachinery's ``managedfields.ScaleHandler``. The rest is an ordinary update through the
subresource ``scale`` (pipeline.finish_update).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kubechronicle.api.builtin.kinds import default_rules
from kubechronicle.api.errors import status
from kubechronicle.api.managed_fields import field_sets, managers
from kubechronicle.api.managed_fields.field_sets import FieldSet
from kubechronicle.api.managed_fields.managers import Entry, ManagerKey, Writer
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.pipeline import bodies, conversion, custom_scale, patching, server_side_apply
from kubechronicle.api.pipeline.validation import check_uid
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.schema.types import object_type
from kubechronicle.api.values.objects import Object

SCALE_GROUP: Final = "autoscaling"
SCALE_VERSION: Final = "v1"
SCALE_DEFINITION: Final = "io.k8s.api.autoscaling.v1.Scale"


class Scaled(dict[str, Any]):
    """A workload with a changed Scale, on its way to the store. Mutating admission sees and changes the Scale.

    ``old``: the workload before, in the version of the request. ``before``: its Scale.
    ``scale``: the changed Scale. ``sent``: the same as it was before admission. ``rt``: the workload's type.
    """

    __slots__ = ("before", "old", "problem", "rt", "scale", "sent")

    def __init__(self, rt: ResourceType, *, old: Object, before: Object, scale: Object) -> None:
        super().__init__()
        self.rt, self.old, self.before, self.sent = rt, old, before, scale
        self.replace(scale)

    def replace(self, scale: Object) -> None:
        """Replace the Scale."""
        self.scale = scale
        self.problem: status.StatusError | None = None
        try:
            new = _to_parent(self.rt, self.old, scale)
        except status.StatusError as error:
            new, self.problem = copy_object(self.old), error
        self.clear()
        self.update(new)

    def checked(self) -> Object:
        """Return the workload. 422, 409: the Scale is invalid. kube-apiserver says so after mutating admission."""
        if self.problem is not None:
            raise self.problem
        return dict(self)


def scale_type(rt: ResourceType) -> ResourceType:
    """Return the type of a resource's scale subresource, for decoding and conversion of its bodies."""
    return replace(
        rt,
        group=SCALE_GROUP,
        version=SCALE_VERSION,
        kind="Scale",
        list_kind="",
        storage_api_version=f"{SCALE_GROUP}/{SCALE_VERSION}",
        storage_kind="Scale",
        message="autoscaling/v1.Scale",
        definition=SCALE_DEFINITION,
        subresources={},
        custom=None,
    )


def stored_scale(rt: ResourceType, obj: Object, *, required: bool = False) -> Object:
    """Return the Scale of a stored object, which is consumed.

    ``required``: as a GET answers, which fails (500) for a custom object without replicas.
    """
    if rt.custom is None:
        return scale_of(obj)
    seen = conversion.read(rt, obj)
    return custom_scale.shown_scale(rt, seen) if required else custom_scale.scale_of(rt, seen)


def scale_of(obj: Mapping[str, Any]) -> Object:
    """Return the Scale of a workload."""
    meta = obj["metadata"]
    spec, current = obj.get("spec") or {}, obj.get("status") or {}
    scale: Object = {
        "kind": "Scale",
        "apiVersion": f"{SCALE_GROUP}/{SCALE_VERSION}",
        "metadata": {
            name: meta[name]
            for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if name in meta
        },
        "spec": {"replicas": spec["replicas"]} if spec.get("replicas") else {},
        "status": {"replicas": current.get("replicas", 0)},
    }
    selector = selector_text(spec.get("selector") or {})
    if selector:
        scale["status"]["selector"] = selector
    return scale


_OPERATOR_WORDS: Final = {"In": "in", "NotIn": "notin"}


def selector_text(selector: Mapping[str, Any]) -> str:
    """Return a label selector (or a plain map of labels) as ``a=b,c in (d,e),!f``, sorted by key."""
    if not selector.keys() & {"matchLabels", "matchExpressions"}:
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for requirement in selector.get("matchExpressions") or ():
        key, operator = requirement.get("key", ""), requirement.get("operator", "")
        if operator in _OPERATOR_WORDS:
            values = ",".join(sorted(requirement.get("values") or ()))
            parts.append((key, f"{key} {_OPERATOR_WORDS[operator]} ({values})"))
        else:
            parts.append((key, key if operator == "Exists" else f"!{key}"))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def decode_scale(
    rt: ResourceType,
    obj: Any,
    *,
    name: str,
    namespace: str,
    validation: str,
    duplicates: Sequence[str],
    raw: bytes,
    note: Callable[[Object], None] | None = None,
) -> tuple[Object, list[str]]:
    """Return (Scale, warnings) of the decoded body of a PUT. 400 if it is not a Scale, or has another name.

    ``note``: receives the Scale as it was sent, before it is compared with the URL.
    """
    kind = scale_type(rt)
    if not isinstance(obj, dict):
        raise bodies.unrecognized(kind, bodies.not_an_object(obj), raw)
    try:
        scale, warnings = bodies.decode(kind, obj, duplicates=duplicates, validation=validation)
    except status.StatusError:
        if rt.custom is None:
            raise
        raise status.bad_request(custom_scale.NOT_REGISTERED) from None
    if note is not None:
        note(scale)
    metadata.match_name(scale["metadata"], name)
    metadata.match_namespace(scale["metadata"], namespaced=rt.namespaced, namespace=namespace)
    return scale, warnings


def unreadable(rt: ResourceType, error: status.StatusError) -> status.StatusError:
    """Return the error for a body that cannot be decoded as a Scale: of custom objects, it says nothing of the body."""
    unrecognized = error.message.startswith("the object provided is unrecognized")
    return status.bad_request(custom_scale.NOT_REGISTERED) if rt.custom is not None and unrecognized else error


def put_scale(rt: ResourceType, old: Object, wanted: Object, *, manager: str, now: str, dry_run: bool) -> Scaled:
    """Return the workload after an update of its Scale to ``wanted``. 409 for a Scale with another uid.

    ``old``: as stored; a custom object is consumed. ``now``: the time of the request.
    """
    if rt.custom is not None:
        old = conversion.read(rt, old)
    meta, held = wanted["metadata"], old["metadata"]
    namespace = held.get("namespace", "")
    check_uid(rt, meta, held.get("uid", ""), name=held.get("name", ""), namespace=namespace, dry_run=dry_run)
    scale, before = copy_object(wanted), _to_subresource(rt, old)
    _track(rt, before, scale, manager=manager, now=now)
    return Scaled(rt, old=old, before=before, scale=scale)


def patch_scale(
    rt: ResourceType,
    old: Object,
    content_type: str,
    request: server_side_apply.ApplyRequest,
    *,
    name: str,
    namespace: str,
) -> tuple[Object, list[str]]:
    """Return (workload, warnings) after a patch of its Scale, server-side apply included."""
    before, kind = _to_subresource(rt, old), scale_type(rt)
    if content_type == patching.APPLY_YAML:
        if rt.custom is not None and not before["metadata"].get("managedFields"):
            server_side_apply.check_type(kind, request.body)
            raise custom_scale.no_managers()
        held = before["spec"].get("replicas", 0)
        writer = replace(request.writer, api_version=kind.api_version)
        scale, warnings = server_side_apply.apply_to(kind, before, replace(request, writer=writer, reset=()))
        if rt.custom is not None and scale["spec"].get("replicas", 0) != held:
            raise custom_scale.no_change(scale)
    else:
        scale, warnings = patching.apply(
            kind, copy_object(before), content_type, request.body, validation=request.validation
        )
        _track(rt, before, scale, manager=request.writer.manager, now=request.writer.now)
    try:
        metadata.match_namespace(scale["metadata"], namespaced=rt.namespaced, namespace=namespace)
        metadata.match_name(scale["metadata"], name)
        scaled = Scaled(rt, old=old, before=before, scale=scale)
        if scaled.problem is not None:
            scaled.problem.warnings = warnings
        return scaled, warnings
    except status.StatusError as error:
        error.warnings = warnings
        raise


# -- the managers of a Scale ------------------------------------------------------------------------------------------

REPLICAS: Final = "f:replicas"
ONLY_REPLICAS: Final[FieldSet] = {"f:spec": {REPLICAS: {}}}

VERSIONS: Final = {
    "Deployment": ("apps/v1beta1", "apps/v1beta2", "apps/v1"),
    "ReplicaSet": ("apps/v1beta2", "apps/v1"),
    "ReplicationController": ("v1",),
    "StatefulSet": ("apps/v1beta1", "apps/v1beta2", "apps/v1"),
}
"""Kind of a workload -> the versions of its entries; entries in other versions are dropped."""


def _replicas_in(rt: ResourceType, api_version: str) -> FieldSet | None:
    """Return the field set of the replicas in a version: None for an unknown version, {} for one without a Scale."""
    if rt.custom is not None:
        return custom_scale.owned_replicas(rt, api_version)
    return ONLY_REPLICAS if api_version in VERSIONS[rt.kind] else None


def _track(rt: ResourceType, before: Object, scale: Object, *, manager: str, now: str) -> None:
    """Record the manager of the changes of a Scale."""
    kind = scale_type(rt)
    writer = Writer(manager=manager, api_version=kind.api_version, subresource="scale", now=now)
    managers.track(object_type(kind.definition), before, scale, writer=writer)


def _to_subresource(rt: ResourceType, old: Object) -> Object:
    """Return the Scale of a workload, with the managers of the workload's replicas."""
    scale = scale_of(old) if rt.custom is None else custom_scale.scale_of(rt, old, unset=custom_scale.UNSET)
    entries = [
        {**entry, "apiVersion": f"{SCALE_GROUP}/{SCALE_VERSION}", "fieldsV1": ONLY_REPLICAS}
        for entry in managers.distinct(old["metadata"].get("managedFields") or [])
        if _has(entry, _replicas_in(rt, entry.get("apiVersion", "")))
    ]
    if entries:
        scale["metadata"]["managedFields"] = managers.ordered(entries)
    return scale


def _to_parent(rt: ResourceType, old: Object, scale: Object) -> Object:
    """Return the workload with a changed Scale and its managers. 422 for an invalid Scale.

    The key of an Update entry contains the version. So an entry of the Scale never is one of the workload's: the
    workload's entry loses replicas, and a second one of the same key, without a time, gets it. That happens even if
    nothing changes. The next write keeps the last of both (``managers.distinct``), which is the one with a time.
    """
    new = with_scale(rt, old, scale)
    shown = {managers.key_of(entry): entry for entry in scale["metadata"].get("managedFields") or ()}
    former = {managers.key_of(entry): entry for entry in old["metadata"].get("managedFields") or ()}
    kept: dict[ManagerKey, Entry] = {}
    for key, entry in former.items():
        replicas = _replicas_in(rt, entry.get("apiVersion", ""))
        if replicas is None:
            continue
        if not _has(entry, replicas) or shown.pop(key, None) is not None:
            kept[key] = entry
        elif left := field_sets.difference(entry["fieldsV1"], replicas):
            kept[key] = {**entry, "fieldsV1": left}
    for key, entry in shown.items():
        if _has(entry, ONLY_REPLICAS):
            timeless = {name: value for name, value in entry.items() if name != "time"}
            time = {"time": former[key]["time"]} if former.get(key, {}).get("time") else {}
            replicas = _replicas_in(rt, rt.api_version)
            kept[key] = {**timeless, "apiVersion": rt.api_version, "fieldsV1": replicas, **time}
    new["metadata"].pop("managedFields", None)
    if kept:
        new["metadata"]["managedFields"] = managers.ordered(list(kept.values()))
    return new


def _has(entry: Entry, replicas: FieldSet | None) -> bool:
    return bool(replicas) and bool(field_sets.intersection(entry.get("fieldsV1") or {}, replicas or {}))


def with_scale(rt: ResourceType, old: Object, scale: Mapping[str, Any]) -> Object:
    """Return the workload with the replicas, and the preconditions, of a Scale. 422 for an invalid one.

    The result goes through finish_update; ``scale_of`` of the stored object is the answer.
    """
    if rt.custom is not None:
        return custom_scale.with_scale(rt, old, scale)
    meta = scale["metadata"]
    causes = metadata.validate_managed_fields(meta.get("managedFields") or (), "metadata")  # the rest is dropped
    causes += default_rules().declared.causes(SCALE_DEFINITION, "scale", scale, None)  # no gate chooses
    if causes:
        raise status.invalid(SCALE_GROUP, "Scale", old["metadata"].get("name", ""), causes)
    uid, held = meta.get("uid"), old["metadata"].get("uid", "")
    if uid and uid != held:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {held}"
        raise status.conflict(f"{rt.plural}/scale.{rt.group}".rstrip("."), old["metadata"].get("name", ""), why)
    new: Object = copy_object(old)
    new["spec"]["replicas"] = (scale.get("spec") or {}).get("replicas", 0)
    new["metadata"]["resourceVersion"] = meta.get("resourceVersion") or old["metadata"].get("resourceVersion", "")
    return new
