"""Validation of pods' volumes, one row per source, in Kubernetes' order.

The sources that PersistentVolumes can have too are in common/volume_sources.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.checks import descending_path, dns_label, dns_subdomain, one_of, wrong
from kubechronicle.api.builtin.common.volume_sources import (
    INITIATOR_TOO_LONG,
    Source,
    azure_disk,
    csi_driver_name,
    fc,
    flex,
    flocker,
    host_path,
    initiator_too_long,
    iscsi,
    named_secret,
    needs,
    nfs,
    one_source,
    partition,
    quobyte,
    storage_os,
)
from kubechronicle.api.builtin.core.persistentvolumeclaim.validation import claim_template
from kubechronicle.api.builtin.core.pod.validation_containers import PULL_POLICIES
from kubechronicle.api.builtin.core.pod.validation_files import downward_api, file_items, projected
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, invalid_value, required
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object


def _empty_dir(source: Object, field: str) -> list[Cause]:
    limit = source.get("sizeLimit")
    if limit is None or quantity.value_of(limit) >= 0:
        return []
    return [forbidden(f"{field}.sizeLimit", "SizeLimit field must be a valid resource quantity")]


def _git_repo(source: Object, field: str) -> list[Cause]:
    return descending_path(source.get("directory", ""), f"{field}.directory")


def _csi(source: Object, field: str) -> list[Cause]:
    causes = csi_driver_name(source.get("driver", ""), f"{field}.driver")
    secret = source.get("nodePublishSecretRef")
    if secret is not None:
        if not secret.get("name"):
            causes.append(required(f"{field}.nodePublishSecretRef.name"))
        else:
            causes += dns_subdomain(secret["name"], f"{field}.name")
    return causes


def _ephemeral(source: Object, field: str) -> list[Cause]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        return [required(f"{field}.volumeClaimTemplate")]
    return claim_template(template, f"{field}.volumeClaimTemplate")


def _image(source: Object, field: str) -> list[Cause]:
    return one_of(source.get("pullPolicy", ""), PULL_POLICIES, f"{field}.pullPolicy")


POD_SOURCES: Final[Mapping[str, Source]] = {
    "emptyDir": _empty_dir,
    "hostPath": host_path,
    "gitRepo": needs("repository", then=_git_repo),
    "gcePersistentDisk": needs("pdName", then=partition),
    "awsElasticBlockStore": needs("volumeID", then=partition),
    "secret": needs("secretName", then=file_items),
    "nfs": needs("server", "path", then=nfs),
    "iscsi": iscsi,
    "glusterfs": needs("endpoints", "path"),
    "flocker": flocker,
    "persistentVolumeClaim": needs("claimName"),
    "rbd": needs("monitors", "image"),
    "cinder": needs("volumeID", then=named_secret),
    "cephfs": needs("monitors"),
    "quobyte": quobyte,
    "downwardAPI": downward_api,
    "fc": fc,
    "flexVolume": flex,
    "configMap": needs("name", then=file_items),
    "azureFile": needs("secretName", "shareName"),
    "vsphereVolume": needs("volumePath"),
    "photonPersistentDisk": needs("pdID"),
    "portworxVolume": needs("volumeID"),
    "azureDisk": needs("diskName", "diskURI", then=azure_disk),
    "storageos": storage_os,
    "projected": projected,
    "scaleIO": needs("gateway", "system", "volumeName"),
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}


def _others(volume: Object) -> bool:
    """Return whether a volume has another source than an image. Only the first source of a volume is checked."""
    return any(name in volume for name in POD_SOURCES if name != "image")


def volumes(given: list[Object], field: str, pod: Object | None) -> tuple[dict[str, Object], list[Cause]]:
    """Return the valid volumes by name, and the causes. ``pod`` is the pod's metadata, or None for a template."""
    causes: list[Cause] = []
    good: dict[str, Object] = {}
    owner = (pod or {}).get("name", "")
    created = {f"{owner}-{volume.get('name', '')}" for volume in given if owner and volume.get("ephemeral") is not None}
    for index, volume in enumerate(given):
        path, name = f"{field}[{index}]", volume.get("name", "")
        found = one_source(volume, POD_SOURCES, path)
        if pod is not None and "image" in volume and not volume["image"].get("reference") and not _others(volume):
            found.insert(0, required(f"{path}.image.reference"))
        if "iscsi" in volume and initiator_too_long(name, volume["iscsi"]):
            found.append(invalid_value(f"{path}.name", name, INITIATOR_TOO_LONG))
        if owner and name and volume.get("ephemeral") is not None:
            claim = f"{owner}-{name}"
            found += wrong(f"{path}.name", name, [f'PVC name "{claim}": {text}' for text in names.dns_subdomain(claim)])
        found += dns_label(name, f"{path}.name") if name else [required(f"{path}.name")]
        if name in good:
            found.append(duplicate(f"{path}.name", name))
        if found:
            causes += found
        else:
            good[name] = volume
        claimed = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claimed in created:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            causes.append(invalid_value(f"{path}.persistentVolumeClaim.claimName", claimed, detail))
    return good, causes
