"""What else a pod refers to in its namespace: what the node it runs on may read, and what keeps it from being a mirror
pod (after Kubernetes' podutil.VisitPodSecretNames and VisitPodConfigmapNames)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a pod that stands for one the kubelet runs from a file."""

CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
SECRETS, CONFIG_MAPS, CLAIMS = "secrets", "configmaps", "persistentvolumeclaims"
ACCOUNTS, RESOURCE_CLAIMS = "serviceaccounts", "resourceclaims.resource.k8s.io"

# Volume source -> where the name of a secret stands in it.
SECRET_VOLUMES: Final[Mapping[str, tuple[str, ...]]] = {
    "azureFile": ("secretName",),
    "cephfs": ("secretRef", "name"),
    "cinder": ("secretRef", "name"),
    "csi": ("nodePublishSecretRef", "name"),
    "flexVolume": ("secretRef", "name"),
    "iscsi": ("secretRef", "name"),
    "rbd": ("secretRef", "name"),
    "scaleIO": ("secretRef", "name"),
    "secret": ("secretName",),
    "storageos": ("secretRef", "name"),
}

Reference = tuple[str, str]
"""(storage resource, name), in the pod's namespace."""


def references(pod: Mapping[str, Any]) -> frozenset[Reference]:
    """Everything a pod refers to by name; nothing for a mirror pod, which nobody has vouched for."""
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        return frozenset()
    return frozenset(reference for reference in _all(pod) if reference[1])


def _all(pod: Mapping[str, Any]) -> Iterator[Reference]:
    spec = pod.get("spec") or {}
    yield ACCOUNTS, spec.get("serviceAccountName", "")
    for each in spec.get("imagePullSecrets") or ():
        yield SECRETS, each.get("name", "")
    for kind in CONTAINERS:
        for container in spec.get(kind) or ():
            yield from _of_container(container)
    for volume in spec.get("volumes") or ():
        yield from _of_volume(volume, pod["metadata"].get("name", ""))
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    for claim in (*(spec.get("resourceClaims") or ()), *statuses):
        yield RESOURCE_CLAIMS, claim.get("resourceClaimName") or ""


def _of_container(container: Mapping[str, Any]) -> Iterator[Reference]:
    for source in container.get("envFrom") or ():
        yield SECRETS, _at(source, "secretRef", "name")
        yield CONFIG_MAPS, _at(source, "configMapRef", "name")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if source:
            yield SECRETS, _at(source, "secretKeyRef", "name")
            yield CONFIG_MAPS, _at(source, "configMapKeyRef", "name")


def _of_volume(volume: Mapping[str, Any], pod: str) -> Iterator[Reference]:
    for source, path in SECRET_VOLUMES.items():
        if source in volume:
            yield SECRETS, _at(volume[source], *path)
    yield CONFIG_MAPS, _at(volume, "configMap", "name")
    yield CLAIMS, _at(volume, "persistentVolumeClaim", "claimName")
    if volume.get("ephemeral") is not None:
        yield CLAIMS, f"{pod}-{volume.get('name', '')}"
    for source in _at(volume, "projected", "sources") or ():
        yield SECRETS, _at(source, "secret", "name")
        yield CONFIG_MAPS, _at(source, "configMap", "name")


def volume_secrets(volume: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(namespace, name) of the secrets a PersistentVolume's source refers to; without a namespace they are in that of
    the claim."""
    spec = volume.get("spec") or {}
    claim = (spec.get("claimRef") or {}).get("namespace", "")
    for source, path in SECRET_VOLUMES.items():
        held = spec.get(source)
        if not held:
            continue
        if source == "azureFile":
            yield held.get("secretNamespace") or claim, held.get("secretName", "")
        else:
            yield _at(held, path[0], "namespace") or claim, _at(held, *path)
    csi = spec.get("csi") or {}
    for name in ("nodeStageSecretRef", "nodeExpandSecretRef", "controllerPublishSecretRef"):
        yield _at(csi, name, "namespace") or claim, _at(csi, name, "name")


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return "" if value is None else value
