"""Defaults of the core kinds with few rules, merged with those of the kinds' folders.

Constant values by definition and field, and functions for defaults that depend on other fields. Source: Kubernetes'
``apis/core/v1/defaults``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.core.node import defaults as node
from kubechronicle.api.builtin.core.persistentvolume import defaults as persistentvolume
from kubechronicle.api.builtin.core.persistentvolumeclaim import defaults as persistentvolumeclaim
from kubechronicle.api.builtin.core.pod import defaults as pod
from kubechronicle.api.builtin.core.service import defaults as service
from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    **persistentvolume.VALUES,
    **persistentvolumeclaim.VALUES,
    **pod.VALUES,
    "core.v1.Secret": {"type": "Opaque"},
    "core.v1.EndpointPort": {"protocol": "TCP"},
    "core.v1.NamespaceStatus": {"phase": "Active"},
    "core.v1.ReplicationControllerSpec": {"replicas": 1},
}


RESOURCE_LISTS: Final[Mapping[str, Sequence[str]]] = {
    "core.v1.ContainerStatus": ("allocatedResources",),
    "core.v1.LimitRangeItem": ("default", "defaultRequest", "max", "maxLimitRequestRatio", "min"),
    "core.v1.NodeStatus": ("allocatable", "capacity"),
    "core.v1.PersistentVolumeClaimStatus": ("allocatedResources", "capacity"),
    "core.v1.PersistentVolumeSpec": ("capacity",),
    "core.v1.PodSpec": ("overhead",),
    "core.v1.PodStatus": ("allocatedResources",),
    "core.v1.ResourceQuotaSpec": ("hard",),
    "core.v1.ResourceQuotaStatus": ("hard", "used"),
    "core.v1.ResourceRequirements": ("limits", "requests"),
    "core.v1.VolumeResourceRequirements": ("limits", "requests"),
}
"""Definition -> fields with amounts of resources, which are rounded up to a thousandth."""


def namespace(obj: Object) -> None:
    """Label every namespace with its name."""
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def replication_controller(obj: Object) -> None:
    """Copy the template's labels to the selector and to the object's labels."""
    labels = ((obj["spec"].get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        if not obj["spec"].get("selector"):
            obj["spec"]["selector"] = dict(labels)
        if not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)


def limit_range_item(obj: Object) -> None:
    """Derive a container's default limit from its maximum, and the default request from the limit and the minimum."""
    if obj.get("type") != "Container":
        return
    limit = obj.get("default") or {}
    request = obj.get("defaultRequest") or {}
    for name, amount in (obj.get("max") or {}).items():
        limit.setdefault(name, amount)
    for source in (limit, obj.get("min") or {}):
        for name, amount in source.items():
            request.setdefault(name, amount)
    if limit:
        obj["default"] = limit
    if request:
        obj["defaultRequest"] = request


def secret(obj: Object) -> None:
    """Write stringData over data, and remove it."""
    from kubechronicle.api.schema.values import encode_bytes

    texts = obj.pop("stringData", None)
    if texts:
        data = obj.setdefault("data", {})
        for key, text in texts.items():
            data[key] = encode_bytes(text)


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    **node.FUNCTIONS,
    **persistentvolume.FUNCTIONS,
    **pod.FUNCTIONS,
    **service.FUNCTIONS,
    "core.v1.Namespace": namespace,
    "core.v1.ReplicationController": replication_controller,
    "core.v1.LimitRangeItem": limit_range_item,
    "core.v1.Secret": secret,
}
