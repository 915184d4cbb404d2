"""References of a pod to objects in its namespace.

Its node may read these objects, and a mirror pod must not have any. After Kubernetes' podutil.VisitPodSecretNames and
VisitPodConfigmapNames.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod: it represents a pod that the kubelet runs from a file."""

SECRETS, CONFIG_MAPS, CLAIMS = "secrets", "configmaps", "persistentvolumeclaims"
ACCOUNTS, RESOURCE_CLAIMS = "serviceaccounts", "resourceclaims.resource.k8s.io"

# Volume source -> path of the secret's name in it.
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


class _Container(msgspec.Struct):
    env: list[dict[str, Any]] | None = None
    sources: list[dict[str, Any]] | None = msgspec.field(name="envFrom", default=None)


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    service_account_name: str | None = None
    image_pull_secrets: list[dict[str, Any]] | None = None
    init_containers: list[_Container] | None = None
    containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None
    volumes: list[dict[str, Any]] | None = None
    resource_claims: list[dict[str, Any]] | None = None


class _PodStatus(msgspec.Struct, rename="camel"):
    resource_claim_statuses: list[dict[str, Any]] | None = None
    extended_resource_claim_status: dict[str, Any] | None = None


class _PodMetadata(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    """The parts of a pod in which references are. The rest, most of a large one, is passed over."""

    metadata: _PodMetadata
    spec: _PodSpec | None = None
    status: _PodStatus | None = None


_POD: Final = msgspec.json.Decoder(_Pod)


def references(pod: Mapping[str, Any]) -> frozenset[Reference]:
    """Return all references of a pod; none for a mirror pod, whose contents no admission has checked."""
    return _references(msgspec.convert(pod, _Pod))


def node_and_references(json: bytes) -> tuple[str, frozenset[Reference]]:
    """Return the node of a stored pod, "" for none, and its references."""
    pod = _POD.decode(json)
    return (pod.spec.node_name or "" if pod.spec is not None else ""), _references(pod)


def _references(pod: _Pod) -> frozenset[Reference]:
    if MIRROR in (pod.metadata.annotations or {}):
        return frozenset()
    return frozenset(reference for reference in _all(pod) if reference[1])


def _all(pod: _Pod) -> Iterator[Reference]:
    spec = pod.spec or _PodSpec()
    yield ACCOUNTS, spec.service_account_name or ""
    for each in spec.image_pull_secrets or ():
        yield SECRETS, each.get("name", "")
    for containers in (spec.init_containers, spec.containers, spec.ephemeral_containers):
        for container in containers or ():
            yield from _of_container(container)
    for volume in spec.volumes or ():
        yield from _of_volume(volume, pod.metadata.name)
    for claim in _claims(spec.resource_claims or (), pod.status or _PodStatus()):
        yield RESOURCE_CLAIMS, claim


def _claims(wanted: Sequence[Mapping[str, Any]], status: _PodStatus) -> Iterator[str]:
    """Yield the names of resource claims: named ones, those made from templates, and the one for extended resources.

    The status names the claim made from a template; it cannot add others.
    """
    made = {each.get("name"): each.get("resourceClaimName") for each in status.resource_claim_statuses or ()}
    for claim in wanted:
        if claim.get("resourceClaimName"):
            yield claim["resourceClaimName"]
        elif claim.get("resourceClaimTemplateName"):
            yield made.get(claim.get("name")) or ""
    yield (status.extended_resource_claim_status or {}).get("resourceClaimName") or ""


def _of_container(container: _Container) -> Iterator[Reference]:
    for source in container.sources or ():
        yield SECRETS, _at(source, "secretRef", "name")
        yield CONFIG_MAPS, _at(source, "configMapRef", "name")
    for variable in container.env or ():
        if "valueFrom" in variable:
            yield SECRETS, _at(variable, "valueFrom", "secretKeyRef", "name")
            yield CONFIG_MAPS, _at(variable, "valueFrom", "configMapKeyRef", "name")


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


# PersistentVolume sources with an optional namespace of the secret: the default is the claim's.
IN_THE_CLAIM_S_NAMESPACE: Final = frozenset({"cephfs", "flexVolume", "iscsi", "rbd", "scaleIO"})
# The secrets of a CSI volume that nodes need; the others are for controllers.
CSI_NODE_SECRETS: Final = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")


def volume_secrets(volume: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (namespace, name) of the secrets that a node needs for a PersistentVolume; none before it is claimed.

    After the kubelet's part of Kubernetes' pvutil.VisitPVSecretNames.
    """
    spec = volume.get("spec") or {}
    claim = (spec.get("claimRef") or {}).get("namespace", "")
    if claim:
        yield from ((namespace, name) for namespace, name in _volume_secrets(spec, claim) if namespace and name)


def _volume_secrets(spec: Mapping[str, Any], claim: str) -> Iterator[tuple[str, str]]:
    for source in SECRET_VOLUMES:
        held = spec.get(source)
        if not held:
            continue
        if source == "azureFile":
            yield held.get("secretNamespace") or claim, held.get("secretName", "")
        elif source == "csi":
            for field in CSI_NODE_SECRETS:
                yield _at(held, field, "namespace"), _at(held, field, "name")
        else:
            namespace = claim if source in IN_THE_CLAIM_S_NAMESPACE else ""
            yield _at(held, "secretRef", "namespace") or namespace, _at(held, "secretRef", "name")


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return "" if value is None else value
