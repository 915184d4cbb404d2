"""Validation of volumes: the sources of pods' volumes and of PersistentVolumes, one row per source in the tables at the
end, in the order in which Kubernetes looks at them.

A volume has one source. The second found is refused, and only the first is looked into.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from kubechronicle.api.builtin.checks import (
    descending_path,
    dns_label,
    dns_subdomain,
    in_range,
    missing,
    no_backsteps,
    one_of,
    one_of_if_set,
    wrong,
)
from kubechronicle.api.builtin.validation_claims import claim_template
from kubechronicle.api.builtin.validation_files import downward_api, file_items, projected
from kubechronicle.api.errors.field_errors import (
    Cause,
    duplicate,
    forbidden,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object

Source = Callable[[Object, str], list[Cause]]

ONE_TYPE: Final = "may not specify more than 1 volume type"
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
MAX_DRIVER_NAME: Final = 63


def needs(*members: str, then: Source | None = None) -> Source:
    """Return a check that these members are given, and what ``then`` finds."""

    def check(source: Object, field: str) -> list[Cause]:
        causes = missing(source, field, *members)
        return causes + then(source, field) if then is not None else causes

    return check


def _empty_dir(source: Object, field: str) -> list[Cause]:
    limit = source.get("sizeLimit")
    if limit is None or quantity.value_of(limit) >= 0:
        return []
    return [forbidden(f"{field}.sizeLimit", "SizeLimit field must be a valid resource quantity")]


HOST_PATH_TYPES: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)


def _host_path(source: Object, field: str) -> list[Cause]:
    path = source.get("path", "")
    if not path:
        return [required(f"{field}.path")]
    return no_backsteps(path, f"{field}.path") + one_of_if_set(source.get("type"), HOST_PATH_TYPES, f"{field}.type")


def _local(source: Object, field: str) -> list[Cause]:
    path = source.get("path", "")
    return no_backsteps(path, f"{field}.path") if path else [required(f"{field}.path")]


def _partition(source: Object, field: str) -> list[Cause]:
    return in_range(source.get("partition", 0), 1 if source.get("partition") else 0, 255, f"{field}.partition")


def _git_repo(source: Object, field: str) -> list[Cause]:
    return descending_path(source.get("directory", ""), f"{field}.directory")


def _nfs(source: Object, field: str) -> list[Cause]:
    path = source.get("path", "")
    return [] if path.startswith("/") else [invalid_value(f"{field}.path", path, "must be an absolute path")]


_ISCSI_NAMES: Final = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([0-9A-Za-z.-]+)(:[^,;*&$|\s]+)\Z"),
    "eui": re.compile(r"eui.[0-9A-Za-z]{16}\Z"),
    "naa": re.compile(r"naa.[0-9A-Za-z]{32}\Z"),
}


_ISCSI_FORMAT: Final = "must be valid format"


def _iscsi_name(name: str, field: str, begins: str) -> list[Cause]:
    pattern = _ISCSI_NAMES.get(name[:3])
    if pattern is None:
        return [invalid_value(field, name, _ISCSI_FORMAT + begins)]
    return [] if pattern.search(name) else [invalid_value(field, name, _ISCSI_FORMAT)]


def _iscsi(source: Object, field: str, begins: str = " starting with iqn, eui, or naa") -> list[Cause]:
    causes = missing(source, field, "targetPortal", "iqn")
    if source.get("iqn"):
        causes += _iscsi_name(source["iqn"], f"{field}.iqn", begins)
    causes += in_range(source.get("lun", 0), 0, 255, f"{field}.lun")
    secret = source.get("secretRef")
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and secret is None:
        causes.append(required(f"{field}.secretRef"))
    if not begins and secret is not None and not secret.get("name"):
        causes.append(required(f"{field}.secretRef.name"))
    if source.get("initiatorName") is not None:
        causes += _iscsi_name(source["initiatorName"], f"{field}.initiatorname", begins)
    return causes


def _iscsi_persistent(source: Object, field: str) -> list[Cause]:
    return _iscsi(source, field, "")


MAX_INITIATOR: Final = 64
INITIATOR_TOO_LONG: Final = (
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is "
    "specified."
)


def initiator_too_long(name: str, iscsi: Object) -> bool:
    """Tell whether what names a volume to its target is too long, together with the target."""
    return iscsi.get("initiatorName") is not None and len(f"{name}:{iscsi.get('targetPortal', '')}") > MAX_INITIATOR


def _fc(source: Object, field: str) -> list[Cause]:
    wwns, wwids = source.get("targetWWNs"), source.get("wwids")
    path = f"{field}.targetWWNs"
    if not wwns:
        return [] if wwids else [required(path, "must specify either targetWWNs or wwids, but not both")]
    causes: list[Cause] = []
    if wwids:
        causes.append(invalid_value(path, wwns, "targetWWNs and wwids can not be specified simultaneously"))
    if source.get("lun") is None:
        causes.append(required(f"{field}.lun", "lun is required if targetWWNs is specified"))
    else:
        causes += in_range(source["lun"], 0, 255, f"{field}.lun")
    return causes


def _flocker(source: Object, field: str) -> list[Cause]:
    name, uid = source.get("datasetName", ""), source.get("datasetUUID", "")
    causes: list[Cause] = []
    if not name and not uid:
        causes.append(required(field, "one of datasetName and datasetUUID is required"))
    if name and uid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        causes.append(invalid_value(field, "resource", detail))
    if "/" in name:
        causes.append(invalid_value(f"{field}.datasetName", name, "must not contain '/'"))
    return causes


def _quobyte(source: Object, field: str) -> list[Cause]:
    registry, detail = source.get("registry", ""), "must be a host:port pair or multiple pairs separated by commas"
    causes: list[Cause] = []
    if not registry:
        causes.append(required(f"{field}.registry", detail))
    elif len(source.get("tenant", "")) >= 65:
        causes.append(required(f"{field}.tenant", "must be a UUID and may not exceed a length of 64 characters"))
    else:
        bad = [pair for pair in registry.split(",") if not re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*):[^:]*", pair)]
        causes += [invalid_value(f"{field}.registry", registry, detail)] * len(bad)
    return causes + missing(source, field, "volume")


def _flex(source: Object, field: str) -> list[Cause]:
    causes = missing(source, field, "driver")
    for option in source.get("options") or ():
        domain = "." + option.partition("/")[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            causes.append(invalid_value(f"{field}.options[{option}]", option, detail))
    return causes


_MANAGED_DISK: Final = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_BLOB_DISK: Final = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"


def _azure_disk(source: Object, field: str) -> list[Cause]:
    uri, kind = source.get("diskURI", ""), source.get("kind")
    causes = one_of_if_set(source.get("cachingMode"), ("None", "ReadOnly", "ReadWrite"), f"{field}.cachingMode")
    causes += one_of_if_set(kind, ("Dedicated", "Managed", "Shared"), f"{field}.kind")
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        causes.append(not_supported(f"{field}.diskURI", uri, (_MANAGED_DISK,)))
    if kind not in (None, "Managed") and not uri.startswith("https://"):
        causes.append(not_supported(f"{field}.diskURI", uri, (_BLOB_DISK,)))
    return causes


def _storage_os(source: Object, field: str) -> list[Cause]:
    causes = missing(source, field, "volumeName")
    for member in ("volumeName", "volumeNamespace"):
        if source.get(member):
            causes += dns_label(source[member], f"{field}.{member}")
    return causes + _named_secret(source, field)


def _storage_os_persistent(source: Object, field: str) -> list[Cause]:
    return [*_storage_os({**source, "secretRef": None}, field), *_namespaced_secret(source, field)]


def _named_secret(source: Object, field: str) -> list[Cause]:
    secret = source.get("secretRef")
    return [] if secret is None else missing(secret, f"{field}.secretRef", "name")


def _namespaced_secret(source: Object, field: str) -> list[Cause]:
    secret = source.get("secretRef")
    return [] if secret is None else missing(secret, f"{field}.secretRef", "name", "namespace")


def csi_driver_name(name: str, field: str) -> list[Cause]:
    """The name of a CSI driver: a domain, in either case."""
    causes = [] if name else [required(field)]
    if len(name) > MAX_DRIVER_NAME:
        causes.append(too_long(field, MAX_DRIVER_NAME))
    return causes + wrong(field, name, names.dns_subdomain(name.lower()))


def _csi(source: Object, field: str) -> list[Cause]:
    causes = csi_driver_name(source.get("driver", ""), f"{field}.driver")
    secret = source.get("nodePublishSecretRef")
    if secret is not None:
        if not secret.get("name"):
            causes.append(required(f"{field}.nodePublishSecretRef.name"))
        else:
            causes += dns_subdomain(secret["name"], f"{field}.name")
    return causes


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


def _ephemeral(source: Object, field: str) -> list[Cause]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        return [required(f"{field}.volumeClaimTemplate")]
    return claim_template(template, f"{field}.volumeClaimTemplate")


def _image(source: Object, field: str) -> list[Cause]:
    return one_of(source.get("pullPolicy", ""), PULL_POLICIES, f"{field}.pullPolicy")


# -- tables -----------------------------------------------------------------------------------------------------------

POD_SOURCES: Final[Mapping[str, Source]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": needs("repository", then=_git_repo),
    "gcePersistentDisk": needs("pdName", then=_partition),
    "awsElasticBlockStore": needs("volumeID", then=_partition),
    "secret": needs("secretName", then=file_items),
    "nfs": needs("server", "path", then=_nfs),
    "iscsi": _iscsi,
    "glusterfs": needs("endpoints", "path"),
    "flocker": _flocker,
    "persistentVolumeClaim": needs("claimName"),
    "rbd": needs("monitors", "image"),
    "cinder": needs("volumeID", then=_named_secret),
    "cephfs": needs("monitors"),
    "quobyte": _quobyte,
    "downwardAPI": downward_api,
    "fc": _fc,
    "flexVolume": _flex,
    "configMap": needs("name", then=file_items),
    "azureFile": needs("secretName", "shareName"),
    "vsphereVolume": needs("volumePath"),
    "photonPersistentDisk": needs("pdID"),
    "portworxVolume": needs("volumeID"),
    "azureDisk": needs("diskName", "diskURI", then=_azure_disk),
    "storageos": _storage_os,
    "projected": projected,
    "scaleIO": needs("gateway", "system", "volumeName"),
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}

PERSISTENT_SOURCES: Final[Mapping[str, Source]] = {
    "hostPath": _host_path,
    "gcePersistentDisk": needs("pdName", then=_partition),
    "awsElasticBlockStore": needs("volumeID", then=_partition),
    "glusterfs": needs("endpoints", "path", then=_glusterfs_persistent),
    "flocker": _flocker,
    "nfs": needs("server", "path", then=_nfs),
    "rbd": needs("monitors", "image"),
    "quobyte": _quobyte,
    "cephfs": needs("monitors"),
    "iscsi": _iscsi_persistent,
    "cinder": needs("volumeID", then=_namespaced_secret),
    "fc": _fc,
    "flexVolume": _flex,
    "azureFile": needs("secretName", "shareName", then=_azure_file_persistent),
    "vsphereVolume": needs("volumePath"),
    "photonPersistentDisk": needs("pdID"),
    "portworxVolume": needs("volumeID"),
    "azureDisk": needs("diskName", "diskURI", then=_azure_disk),
    "scaleIO": needs("gateway", "system", "volumeName"),
    "local": _local,
    "storageos": _storage_os_persistent,
    "csi": _csi_persistent,
}

_PATHS: Final = {"gcePersistentDisk": "persistentDisk"}
_SECOND_PATHS: Final = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""Where the causes of a source, and of a second source, are reported if not under its name. (Slips of Kubernetes'.)"""


def one_source(holder: Object, sources: Mapping[str, Source], field: str) -> list[Cause]:
    """The rules of the one source of a volume."""
    given = [name for name in holder if name in sources]
    if len(given) == 1:
        name = given[0]
        return sources[name](holder[name], f"{field}.{_PATHS.get(name, name)}")
    if not given:
        return [required(field, "must specify a volume type")]
    given.sort(key=list(sources).index)
    causes = sources[given[0]](holder[given[0]], f"{field}.{_PATHS.get(given[0], given[0])}")
    second = _SECOND_PATHS if sources is POD_SOURCES else {}
    return causes + [forbidden(f"{field}.{second.get(name, name)}", ONE_TYPE) for name in given[1:]]


def volumes(given: list[Object], field: str, pod: Object | None) -> tuple[dict[str, Object], list[Cause]]:
    """Return the good volumes by name, and what is wrong with the others. ``pod`` is the pod's metadata, if known."""
    causes: list[Cause] = []
    good: dict[str, Object] = {}
    owner = (pod or {}).get("name", "")
    created = {f"{owner}-{volume.get('name', '')}" for volume in given if owner and volume.get("ephemeral") is not None}
    for index, volume in enumerate(given):
        path, name = f"{field}[{index}]", volume.get("name", "")
        found = one_source(volume, POD_SOURCES, path)
        if pod is not None and "image" in volume and not volume["image"].get("reference"):
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
