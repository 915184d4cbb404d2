"""Validation of the volume sources that pods and PersistentVolumes share.

A volume has one source. Only the first source is checked; any other is rejected. The tables of sources, in Kubernetes'
order, are in core/pod/validation_volumes.py and core/persistentvolume.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

from kubechronicle.api.builtin.common.checks import dns_label, in_range, missing, no_backsteps, one_of_if_set, wrong
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required, too_long
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

Source = Callable[[Object, str], list[Cause]]

ONE_TYPE: Final = "may not specify more than 1 volume type"
MAX_DRIVER_NAME: Final = 63


def needs(*members: str, then: Source | None = None) -> Source:
    """Return a check that requires these members, and then runs ``then``."""

    def check(source: Object, field: str) -> list[Cause]:
        causes = missing(source, field, *members)
        return causes + then(source, field) if then is not None else causes

    return check


def host_path(source: Object, field: str) -> list[Cause]:
    """Check the path and the type of a path on the node."""
    path = source.get("path", "")
    if not path:
        return [required(f"{field}.path")]
    return no_backsteps(path, f"{field}.path") + one_of_if_set(
        source.get("type"), enum("core.v1.HostPathType"), f"{field}.type"
    )


def partition(source: Object, field: str) -> list[Cause]:
    """Check the number of a partition."""
    return in_range(source.get("partition", 0), 1 if source.get("partition") else 0, 255, f"{field}.partition")


def nfs(source: Object, field: str) -> list[Cause]:
    """Require an absolute path on the server."""
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


def iscsi(source: Object, field: str, begins: str = " starting with iqn, eui, or naa") -> list[Cause]:
    """Check the portal, names, unit number and secret of an iSCSI target."""
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


MAX_INITIATOR: Final = 64
INITIATOR_TOO_LONG: Final = (
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is "
    "specified."
)


def initiator_too_long(name: str, iscsi: Object) -> bool:
    """Return whether the volume name and the target portal together are too long for an iSCSI initiator."""
    return iscsi.get("initiatorName") is not None and len(f"{name}:{iscsi.get('targetPortal', '')}") > MAX_INITIATOR


def fc(source: Object, field: str) -> list[Cause]:
    """Require targets and a unit number, or world wide identifiers, of a Fibre Channel volume."""
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


def flocker(source: Object, field: str) -> list[Cause]:
    """Require either the name or the UUID of a Flocker dataset."""
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


def quobyte(source: Object, field: str) -> list[Cause]:
    """Check the registry, tenant and volume of a Quobyte volume."""
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


def flex(source: Object, field: str) -> list[Cause]:
    """Require a driver, and reject options in Kubernetes' own namespaces."""
    causes = missing(source, field, "driver")
    for option in source.get("options") or ():
        domain = "." + option.partition("/")[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            causes.append(invalid_value(f"{field}.options[{option}]", option, detail))
    return causes


_MANAGED_DISK: Final = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
_BLOB_DISK: Final = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"


def azure_disk(source: Object, field: str) -> list[Cause]:
    """Check the modes of an Azure disk, and that its URI fits its kind."""
    uri, kind = source.get("diskURI", ""), source.get("kind")
    causes = one_of_if_set(source.get("cachingMode"), enum("core.v1.AzureDataDiskCachingMode"), f"{field}.cachingMode")
    causes += one_of_if_set(kind, enum("core.v1.AzureDataDiskKind"), f"{field}.kind")
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        causes.append(not_supported(f"{field}.diskURI", uri, (_MANAGED_DISK,)))
    if kind not in (None, "Managed") and not uri.startswith("https://"):
        causes.append(not_supported(f"{field}.diskURI", uri, (_BLOB_DISK,)))
    return causes


def storage_os(source: Object, field: str) -> list[Cause]:
    """Require a volume name, and check the namespace and the secret."""
    causes = missing(source, field, "volumeName")
    for member in ("volumeName", "volumeNamespace"):
        if source.get(member):
            causes += dns_label(source[member], f"{field}.{member}")
    return causes + named_secret(source, field)


def named_secret(source: Object, field: str) -> list[Cause]:
    """Require a name if a secret is referenced."""
    secret = source.get("secretRef")
    return [] if secret is None else missing(secret, f"{field}.secretRef", "name")


def csi_driver_name(name: str, field: str) -> list[Cause]:
    """Check the name of a CSI driver: a DNS subdomain in either case."""
    if not name:
        return [required(field)]
    causes = [too_long(field, MAX_DRIVER_NAME)] if len(name.encode()) > MAX_DRIVER_NAME else []
    return causes + wrong(field, name, names.dns_subdomain(name.lower()))


_PATHS: Final = {"gcePersistentDisk": "persistentDisk"}
"""Field path of a source's causes where it differs from the source's name, as in Kubernetes."""


_SECOND_PATHS: Final[Mapping[str, str]] = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""Field path of a second source where it differs from its name, as misspelled in Kubernetes."""


def one_source(holder: Object, sources: Mapping[str, Source], field: str, beside: Collection[str] = ()) -> list[Cause]:
    """Require one source and check it. A source of ``beside`` may stand beside another one."""
    given = [name for name in holder if name in sources]
    if len(given) == 1:
        name = given[0]
        return sources[name](holder[name], f"{field}.{_PATHS.get(name, name)}")
    if not given:
        return [required(field, "must specify a volume type")]
    given.sort(key=list(sources).index)
    causes = sources[given[0]](holder[given[0]], f"{field}.{_PATHS.get(given[0], given[0])}")
    for name in given[1:]:
        if name in beside:
            causes += sources[name](holder[name], f"{field}.{name}")
        else:
            causes.append(forbidden(f"{field}.{_SECOND_PATHS.get(name, name)}", ONE_TYPE))
    return causes
