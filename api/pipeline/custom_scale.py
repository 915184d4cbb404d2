"""The subresource scale of custom objects, at the paths that their definition names.

Pure; pipeline/scale.py has the rest. After apiextensions-apiserver ``pkg/registry/customresource/etcd.go`` (ScaleREST).
Its field manager converts between the definition's versions only, not a Scale that an apply creates or changes.
So only an apply that changes nothing succeeds.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.custom.strategy import field_at, steps
from kubechronicle.api.custom.version import CustomVersion
from kubechronicle.api.errors import status
from kubechronicle.api.managed_fields.field_sets import FieldSet
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object, ReadOnlyObject

UNSET: Final = -(2**31)
"""The replicas of the Scale of an object that has none."""

NOT_REGISTERED: Final = 'no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"'
"""The error of every body of a PUT that is not a Scale."""

_NO_CONVERSION: Final = "to proper version: request to convert CR to an invalid group/version: autoscaling/v1"


def scale_of(rt: ResourceType, obj: ReadOnlyObject, *, unset: int = 0) -> Object:
    """Return the Scale of an object in the version of the request. 500 for values of other types.

    ``unset``: the replicas if the object has none.
    """
    paths = rt.custom.subresources["scale"]
    replicas = _read(obj, paths["specReplicasPath"], int)
    current = _read(obj, paths["statusReplicasPath"], int)
    selector = _read(obj, paths["labelSelectorPath"], str) if paths.get("labelSelectorPath") else None
    replicas = unset if replicas is None else _int32(replicas)
    meta = obj["metadata"]
    found: Object = {"replicas": _int32(current or 0)}
    if selector:
        found["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            name: meta[name]
            for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if name in meta
        },
        "spec": {"replicas": replicas} if replicas else {},
        "status": found,
    }


def shown_scale(rt: ResourceType, obj: ReadOnlyObject) -> Object:
    """Return the Scale for a GET. 500 if the object has no replicas."""
    scale = scale_of(rt, obj, unset=UNSET)
    if scale["spec"].get("replicas") == UNSET:
        path = _replicas_path(rt)
        raise status.internal_error(f'the spec replicas field "{path}" does not exist')
    return scale


def with_scale(rt: ResourceType, old: Object, scale: ReadOnlyObject) -> Object:
    """Return the object with the replicas, and the resourceVersion, of a Scale. 400 for one without replicas."""
    path = _replicas_path(rt)
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas == UNSET:
        raise status.bad_request(f'the spec replicas field "{path}" cannot be empty')
    new: Object = copy_object(old)
    parent: Any = new
    names = steps(path)
    for position, name in enumerate(names[:-1]):
        parent = parent.setdefault(name, {})
        if parent.__class__ is not dict:
            where = ".".join(names[: position + 1])
            raise status.unknown(f"value cannot be set because .{where} is not a map[string]interface{{}}")
    parent[names[-1]] = replicas
    if scale["metadata"].get("resourceVersion"):
        new["metadata"]["resourceVersion"] = scale["metadata"]["resourceVersion"]
    return new


def owned_replicas(rt: ResourceType, api_version: str) -> FieldSet | None:
    """Return the field set of the replicas in a version: None for an unknown version, {} for one without a Scale."""
    group, _, name = api_version.rpartition("/")
    version: CustomVersion | None = rt.custom.versions.get(name) if group == rt.group else None
    if version is None:
        return None
    scale = version.subresources.get("scale")
    return {} if scale is None else field_set(steps(scale["specReplicasPath"]))


def field_set(names: list[str]) -> FieldSet:
    """Return the set of one field.

    >>> field_set(["spec", "replicas"])
    {'f:spec': {'f:replicas': {}}}
    """
    fields: FieldSet = {}
    for name in reversed(names):
        fields = {f"f:{name}": fields}
    return fields


def no_managers() -> status.StatusError:
    """Return the 500 for an apply to an object whose replicas have no owner."""
    return status.unknown(
        "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) "
        + _NO_CONVERSION
    )


def no_change(scale: ReadOnlyObject) -> status.StatusError:
    """Return the 500 for an apply that changes the Scale."""
    meta = scale["metadata"]
    named = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
    return status.unknown(f"failed to convert new object ({named}; autoscaling/v1, Kind=Scale) {_NO_CONVERSION}")


def _replicas_path(rt: ResourceType) -> str:
    path: str = rt.custom.subresources["scale"]["specReplicasPath"]
    return path


def _read(obj: ReadOnlyObject, path: str, wanted: type) -> Any:
    value, problem = field_at(obj, path, wanted)
    if problem:
        raise status.unknown(problem)
    return value


def _int32(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31
