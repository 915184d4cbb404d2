"""Validation of PersistentVolume sources, one row each, in Kubernetes' order.

The sources that pods can have too are in common/volume_sources.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.checks import dns_label, dns_subdomain, missing, no_backsteps
from kubechronicle.api.builtin.common.volume_sources import (
    Source,
    azure_disk,
    csi_driver_name,
    fc,
    flex,
    flocker,
    host_path,
    iscsi,
    needs,
    nfs,
    partition,
    quobyte,
    storage_os,
)
from kubechronicle.api.errors.field_errors import Cause, invalid_value, required
from kubechronicle.api.values.objects import Object


def _local(source: Object, field: str) -> list[Cause]:
    path = source.get("path", "")
    return no_backsteps(path, f"{field}.path") if path else [required(f"{field}.path")]


def _iscsi_persistent(source: Object, field: str) -> list[Cause]:
    return iscsi(source, field, "")


def _storage_os_persistent(source: Object, field: str) -> list[Cause]:
    return [*storage_os({**source, "secretRef": None}, field), *_namespaced_secret(source, field)]


def _namespaced_secret(source: Object, field: str) -> list[Cause]:
    secret = source.get("secretRef")
    return [] if secret is None else missing(secret, f"{field}.secretRef", "name", "namespace")


_CSI_SECRETS: Final = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)


def _csi_persistent(source: Object, field: str) -> list[Cause]:
    causes = csi_driver_name(source.get("driver", ""), f"{field}.driver") + missing(source, field, "volumeHandle")
    for member in _CSI_SECRETS:
        secret = source.get(member)
        if secret is None:
            continue
        causes += missing(secret, f"{field}.{member}", "name", "namespace")
        if secret.get("name"):
            causes += dns_subdomain(secret["name"], f"{field}.{member}.name")
        if secret.get("namespace"):
            causes += dns_label(secret["namespace"], f"{field}.{member}.namespace")
    return causes


def _glusterfs_persistent(source: Object, field: str) -> list[Cause]:
    namespace, path = source.get("endpointsNamespace"), f"{field}.endpointsNamespace"
    if namespace is None:
        return []
    if not namespace:
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        return [invalid_value(path, namespace, detail)]
    return dns_label(namespace, path)


def _azure_file_persistent(source: Object, field: str) -> list[Cause]:
    return [required(f"{field}.secretNamespace")] if source.get("secretNamespace") == "" else []


PERSISTENT_SOURCES: Final[Mapping[str, Source]] = {
    "hostPath": host_path,
    "gcePersistentDisk": needs("pdName", then=partition),
    "awsElasticBlockStore": needs("volumeID", then=partition),
    "glusterfs": needs("endpoints", "path", then=_glusterfs_persistent),
    "flocker": flocker,
    "nfs": needs("server", "path", then=nfs),
    "rbd": needs("monitors", "image"),
    "quobyte": quobyte,
    "cephfs": needs("monitors"),
    "iscsi": _iscsi_persistent,
    "cinder": needs("volumeID", then=_namespaced_secret),
    "fc": fc,
    "flexVolume": flex,
    "azureFile": needs("secretName", "shareName", then=_azure_file_persistent),
    "vsphereVolume": needs("volumePath"),
    "photonPersistentDisk": needs("pdID"),
    "portworxVolume": needs("volumeID"),
    "azureDisk": needs("diskName", "diskURI", then=azure_disk),
    "scaleIO": needs("gateway", "system", "volumeName"),
    "local": _local,
    "storageos": _storage_os_persistent,
    "csi": _csi_persistent,
}

MAY_STAND_BESIDE: Final = ("flexVolume",)
"""Sources that Kubernetes allows beside another one."""
