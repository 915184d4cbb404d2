"""The subresource scale: the Scale of a workload, and the workload with a changed Scale.

Pure. The change is an ordinary update through the subresource ``scale`` (pipeline.accept_update, finish_update).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.api.managed_fields import field_sets, managers
from kubechronicle.api.managed_fields.managers import Entry
from kubechronicle.api.meta import metadata
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.patch import apply
from kubechronicle.api.patch.apply import ManagerKey
from kubechronicle.api.pipeline import bodies, patching, server_side_apply
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object

SCALE_GROUP: Final = "autoscaling"
SCALE_VERSION: Final = "v1"
SCALE_DEFINITION: Final = "io.k8s.api.autoscaling.v1.Scale"


@functools.cache
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
    )


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
    rt: ResourceType, obj: Any, *, name: str, namespace: str, validation: str, duplicates: Sequence[str], raw: bytes
) -> tuple[Object, list[str]]:
    """Return (Scale, warnings) of the decoded body of a PUT. 400 if it is not a Scale, or has another name."""
    kind = scale_type(rt)
    if not isinstance(obj, dict):
        raise bodies.unrecognized(kind, bodies.not_an_object(obj), raw)
    scale, warnings = bodies.decode(kind, obj, duplicates=duplicates, validation=validation)
    metadata.match_name(scale["metadata"], name)
    metadata.match_namespace(scale["metadata"], namespaced=rt.namespaced, namespace=namespace)
    return scale, warnings


def patch_scale(
    rt: ResourceType, old: Object, content_type: str, body: bytes, *, validation: str
) -> tuple[Object, list[str]]:
    """Return (patched Scale, warnings)."""
    return patching.apply(scale_type(rt), scale_of(old), content_type, body, validation=validation)


REPLICAS: Final = "f:replicas"


def apply_scale(
    rt: ResourceType, old: Object, request: server_side_apply.Request, *, name: str, namespace: str
) -> tuple[Object, list[str]]:
    """Return (workload, warnings) after a server-side apply of a Scale.

    The workload's managers of replicas are the Scale's managers, and vice versa.
    """
    entries: list[Entry] = old["metadata"].get("managedFields") or []
    shown = {apply.key_of(entry): scale_entry for entry in entries if (scale_entry := _scale_entry(rt, entry))}
    before = scale_of(old)
    if shown:
        before["metadata"]["managedFields"] = list(shown.values())
    writer = replace(request.writer, api_version=f"{SCALE_GROUP}/{SCALE_VERSION}")
    scale, warnings = server_side_apply.apply_to(scale_type(rt), before, replace(request, writer=writer, reset=()))
    metadata.match_namespace(scale["metadata"], namespaced=rt.namespaced, namespace=namespace)
    metadata.match_name(scale["metadata"], name)
    after = [entry for entry in scale["metadata"].get("managedFields", ()) if _has_replicas(entry)]
    new = with_scale(old, scale)
    kept = _entries_of_workload(rt, entries, shown, after)
    new["metadata"].pop("managedFields", None)
    if kept:
        new["metadata"]["managedFields"] = kept
    return new, warnings


def _has_replicas(entry: Entry) -> bool:
    return REPLICAS in ((entry.get("fieldsV1") or {}).get("f:spec") or {})


def _scale_entry(rt: ResourceType, entry: Entry) -> Entry | None:
    """Return a manager's entry for the Scale, None if it does not own replicas."""
    if entry.get("apiVersion") != rt.api_version or not _has_replicas(entry):
        return None
    return {**entry, "apiVersion": f"{SCALE_GROUP}/{SCALE_VERSION}", "fieldsV1": {"f:spec": {REPLICAS: {}}}}


def _entries_of_workload(
    rt: ResourceType, entries: list[Entry], shown: Mapping[ManagerKey, Entry], after: list[Entry]
) -> list[Entry]:
    """Return the workload's entries, with replicas moved to their owners in the Scale."""
    owners = {apply.key_of(entry) for entry in after}
    result = []
    for entry in entries:
        was = shown.get(apply.key_of(entry))
        fields = entry.get("fieldsV1") or {}
        if was is not None and apply.key_of(was) not in owners:
            fields = field_sets.difference(fields, {"f:spec": {REPLICAS: {}}})
        if fields:
            result.append({**entry, "fieldsV1": fields})
    known = {apply.key_of(was) for was in shown.values()}
    for entry in after:
        if apply.key_of(entry) not in known:
            result.append({**entry, "apiVersion": rt.api_version, "fieldsV1": {"f:spec": {REPLICAS: {}}}})
    return managers.ordered(result)


def with_scale(old: Object, scale: Mapping[str, Any]) -> Object:
    """Return the workload with the replicas, and the preconditions, of a Scale. 422 for an invalid one.

    The result goes through accept_update and finish_update; ``scale_of`` of the stored object is the answer.
    """
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    meta = scale["metadata"]
    if replicas < 0:
        cause = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise status.invalid(SCALE_GROUP, "Scale", meta.get("name", ""), [cause])
    new: Object = copy_object(old)
    new["spec"]["replicas"] = replicas
    for name in ("uid", "resourceVersion"):
        if meta.get(name):
            new["metadata"][name] = meta[name]
        else:
            new["metadata"][name] = old["metadata"].get(name, "")
    return new
