"""Validation of pods' volumes, one row per source, in Kubernetes' order.

The sources that PersistentVolumes can have too are in common/volume_sources.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.certificates.certificatesigningrequest import signer_name
from kubechronicle.api.builtin.certificates.clustertrustbundle import bundle_name
from kubechronicle.api.builtin.certificates.podcertificaterequest import lifetimes, user_annotations
from kubechronicle.api.builtin.common.checks import (
    MAX_INT32,
    descending_path,
    dns_label,
    dns_subdomain,
    in_range,
    label_selector,
    local_path,
    missing,
    one_of,
    wrong,
)
from kubechronicle.api.builtin.common.go_shapes import record
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
from kubechronicle.api.builtin.core.persistentvolumeclaim import claim_template
from kubechronicle.api.builtin.core.pod.validation_container_parts import field_reference, resource_reference
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, invalid_value, not_supported, required
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object

# -- files ------------------------------------------------------------------------------------------------------------

FOLDER_MODE: Final = "must be a number between 0 and 01777 (octal), both inclusive"
FILE_MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"


def file_mode(source: Mapping[str, Any], field: str, member: str = "defaultMode") -> list[Cause]:
    """Check that file permissions are nine bits."""
    mode = source.get(member)
    return [] if mode is None or 0 <= mode <= 0o777 else [invalid_value(f"{field}.{member}", mode, FILE_MODE)]


def file_user(source: Mapping[str, Any], field: str, member: str = "defaultUser") -> list[Cause]:
    """Check that the owner of a file is a user of Linux."""
    user = source.get(member)
    return [] if user is None else in_range(user, 0, MAX_INT32, f"{field}.{member}")


def file_items(source: Object, field: str) -> list[Cause]:
    """Check files made of keys, with their permissions and owners."""
    causes = file_mode(source, field) + file_user(source, field)
    for index, item in enumerate(source.get("items") or ()):
        causes += _key_to_path(item, f"{field}.items[{index}]")
    return causes


def _key_to_path(item: Object, field: str) -> list[Cause]:
    causes = missing(item, field, "key", "path") + local_path(item.get("path", ""), f"{field}.path")
    return causes + file_mode(item, field, "mode") + file_user(item, field, "user")


FILE_FIELDS: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)


def downward_file(item: Object, field: str) -> list[Cause]:
    """Check a file made of a field of the pod or of a container's resources."""
    causes = missing(item, field, "path") + local_path(item.get("path", ""), f"{field}.path")
    reference, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if reference is not None:
        causes += field_reference(reference, FILE_FIELDS, f"{field}.fieldRef")
        if resource is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            causes.append(invalid_value(field, "resource", detail))
    elif resource is not None:
        causes += resource_reference(resource, f"{field}.resourceFieldRef", volume=True)
    else:
        causes.append(required(field, "one of fieldRef and resourceFieldRef is required"))
    return causes + file_mode(item, field, "mode") + file_user(item, field, "user")


def downward_api(source: Object, field: str) -> list[Cause]:
    """Check files of the downward API."""
    causes = file_mode(source, field) + file_user(source, field)
    for item in source.get("items") or ():
        causes += downward_file(item, field)
    return causes


def _token(source: Object, field: str, above: str) -> list[Cause]:
    causes: list[Cause] = []
    seconds, path = source.get("expirationSeconds", 0), f"{field}.expirationSeconds"
    if seconds < 600:
        causes.append(invalid_value(path, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > 1 << 32:
        causes.append(invalid_value(path, seconds, "may not specify a duration larger than 2^32 seconds"))
    if not source.get("path"):
        causes.append(required(f"{above}.path"))
    else:
        causes += local_path(source["path"], f"{above}.path")
    return causes + file_user(source, field, "user")


def _trust_bundle(source: Object, field: str) -> list[Cause]:
    """Check certificates of a bundle with a name, or of all bundles of a signer."""
    name, signer, selector = source.get("name"), source.get("signerName"), source.get("labelSelector")
    causes: list[Cause] = []
    if name is not None and signer is not None:
        shown = record(source, "ClusterTrustBundleProjection")
        causes.append(invalid_value(field, shown, "only one of name and signerName may be used"))
    elif name is not None:
        causes += [] if name else [required(f"{field}.name", "must be a valid object name")]
        problems = bundle_name(name, name.rpartition(":")[0].replace(":", "/"), False)
        causes += wrong(f"{field}.name", name, [f"not a valid clustertrustbundlename: {each}" for each in problems])
        if selector is not None:
            text = "labelSelector must be unset if name is specified"
            causes.append(invalid_value(f"{field}.labelSelector", selector, text))
    elif signer is not None:
        causes += [] if signer else [required(f"{field}.signerName", "must be a valid signer name")]
        causes += signer_name(signer, f"{field}.signerName") + label_selector(selector, f"{field}.labelSelector")
    else:
        causes.append(required(field, "either name or signerName must be specified"))
    causes += missing(source, field, "path") + file_user(source, field, "user")
    return causes + local_path(source.get("path", ""), f"{field}.path")


_KEY_TYPES: Final = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_CERTIFICATE_PATHS: Final = ("credentialBundlePath", "keyPath", "certificateChainPath")


def _certificate(source: Object, field: str, above: str, taken: set[str]) -> list[Cause]:
    """Check the request for a certificate of the pod, and the files for it."""
    signer, seconds = source.get("signerName", ""), source.get("maxExpirationSeconds")
    causes = signer_name(signer, f"{field}.signerName")
    causes += user_annotations(source.get("userAnnotations"), f"{field}.userAnnotations")
    causes += file_user(source, field, "user")
    if source.get("keyType", "") not in _KEY_TYPES:
        causes.append(not_supported(f"{field}.keyType", source.get("keyType", ""), _KEY_TYPES))
    if seconds is not None:
        place, (least, most) = f"{field}.maxExpirationSeconds", lifetimes(signer)
        if seconds < least:
            causes.append(invalid_value(place, seconds, f"if provided, maxExpirationSeconds must be >= {least}"))
        if seconds > most:
            causes.append(invalid_value(place, seconds, f"if provided, maxExpirationSeconds must be <= {most}"))
    given = [name for name in _CERTIFICATE_PATHS if source.get(name)]
    for name in given:
        causes += local_path(source[name], f"{field}.{name}") + _conflicts(source[name], None, above, taken)
    return causes if given else [*causes, required(field, f"specify at least one of {_NAMED_PATHS}")]


_NAMED_PATHS: Final = f"{', '.join(_CERTIFICATE_PATHS[:2])}, and {_CERTIFICATE_PATHS[2]}"
_PROJECTIONS: Final = (
    *("secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"),
)


def projected(source: Object, field: str) -> list[Cause]:
    """Check files of several sources, and that their paths differ."""
    causes = file_mode(source, field) + file_user(source, field)
    taken: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        path = f"{field}.sources[{index}]"
        given = [name for name in _PROJECTIONS if projection.get(name) is not None]
        for name in given:
            causes += _projection(name, projection[name], f"{path}.{name}", field, taken)
        if len(given) > 1:
            causes.append(forbidden(path, "may not specify more than 1 volume type per source"))
    return causes


def _projection(name: str, part: Object, path: str, field: str, taken: set[str]) -> list[Cause]:
    if name == "serviceAccountToken":
        return _token(part, path, field)
    if name == "clusterTrustBundle":
        shown = part.get("path", "")
        return _trust_bundle(part, path) + _conflicts(shown, None, field, taken, empty=True)
    if name == "podCertificate":
        return _certificate(part, path, field, taken)
    causes = missing(part, path, "name") if name != "downwardAPI" else []
    for position, item in enumerate(part.get("items") or ()):
        if name == "downwardAPI":
            causes += downward_file(item, path)
            causes += _conflicts(item.get("path", ""), None, field, taken)
        else:
            causes += _key_to_path(item, f"{path}.items[{position}]")
            causes += _conflicts(item.get("path", ""), part.get("name", ""), field, taken)
    return causes


def _conflicts(path: str, owner: str | None, field: str, taken: set[str], *, empty: bool = False) -> list[Cause]:
    if not path and not empty:
        return []
    if path in taken:
        return [invalid_value(field, path if owner is None else owner, "conflicting duplicate paths")]
    taken.add(path)
    return []


# -- volumes ----------------------------------------------------------------------------------------------------------


def _empty_dir(source: Object, field: str) -> list[Cause]:
    limit, mode, causes = source.get("sizeLimit"), source.get("mode"), list[Cause]()
    if limit is not None and quantity.value_of(limit) < 0:
        causes.append(forbidden(f"{field}.sizeLimit", "SizeLimit field must be a valid resource quantity"))
    if mode is not None and not 0 <= mode <= 0o1777:
        causes.append(invalid_value(f"{field}.mode", mode, FOLDER_MODE))
    return causes


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
    return one_of(source.get("pullPolicy", ""), enum("core.v1.PullPolicy"), f"{field}.pullPolicy")


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


def volumes(
    given: list[Object], field: str, pod: Object | None, *, images_without_reference: bool
) -> tuple[dict[str, Object], list[Cause]]:
    """Return the valid volumes by name, and the causes. ``pod`` is the pod's metadata, or None for a template.

    ``images_without_reference``: as in PodOptions.
    """
    causes: list[Cause] = []
    good: dict[str, Object] = {}
    owner = (pod or {}).get("name", "")
    created = {f"{owner}-{volume.get('name', '')}" for volume in given if owner and volume.get("ephemeral") is not None}
    for index, volume in enumerate(given):
        path, name = f"{field}[{index}]", volume.get("name", "")
        found = one_source(volume, POD_SOURCES, path)
        if (
            not images_without_reference
            and "image" in volume
            and not volume["image"].get("reference")
            and not _others(volume)
        ):
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
