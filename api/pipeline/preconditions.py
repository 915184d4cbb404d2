"""The uid of a PUT as a precondition, in the words of Kubernetes' store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.errors import status
from kubechronicle.api.registry.registry import ResourceType

PREFIXES: Final = {
    "endpoints": "services/endpoints",
    "ingresses.networking.k8s.io": "ingress",
    "nodes": "minions",
    "replicationcontrollers": "controllers",
    "services": "services/specs",
}
"""Resource -> the prefix of its keys in etcd, if that is not its name."""


def check_uid(
    rt: ResourceType, meta: Mapping[str, Any], held: str, *, name: str, namespace: str, dry_run: bool
) -> None:
    """Check that metadata has no uid other than ``held``, the stored object's or "". 409 otherwise."""
    uid = meta.get("uid")
    if not uid or uid == held:
        return
    key = "/".join(filter(None, (PREFIXES.get(rt.resource, rt.plural), namespace, name)))
    prefix = "" if dry_run else "/registry"
    why = (
        f"StorageError: invalid object, Code: 4, Key: {prefix}/{key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {uid}, UID in object meta: {held}"
    )
    raise status.conflict(rt, name, why)
