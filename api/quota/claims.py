"""Usage of claims: storage of PersistentVolumeClaims, devices of ResourceClaims.

A volume's size also counts for its storage class. A size allocated by a resize counts while it is greater than the
requested size. Devices count per class; of alternatives, the worst case counts. A pod can also request a device class
as an extended resource. So its devices count against quotas by that name as well, unless the pod of the claim has been
charged already (KEP-5004).

    claim of 10Gi, class gold  ->  requests.storage 10Gi, gold.storageclass.storage.k8s.io/requests.storage 10Gi
    request of 2 devices of class gpu  ->  gpu.deviceclass.resource.k8s.io/devices 2
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING
from typing import Final

from kubechronicle.api.builtin.common.resource_amounts import is_native
from kubechronicle.api.quota import amounts, pods
from kubechronicle.api.quota.amounts import ONE, Amount, Usage
from kubechronicle.api.quota.facts import Facts
from kubechronicle.api.quota.scopes import Traits
from kubechronicle.api.values.objects import Object

VOLUME_CLAIMS: Final = "persistentvolumeclaims"
STORAGE: Final = "requests.storage"
STORAGE_CLASS: Final = ".storageclass.storage.k8s.io/"
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"

DEVICE_CLAIMS: Final = "resourceclaims.resource.k8s.io"
DEVICES: Final = ".deviceclass.resource.k8s.io/devices"
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
MOST_DEVICES: Final = 32
"""The most results of an allocation (resource.k8s.io: AllocationResultsMaxSize)."""

# -- volumes ----------------------------------------------------------------------------------------------------------


def volume_usage(claim: Object) -> Usage:
    """Return the usage of a PersistentVolumeClaim."""
    found: Usage = {VOLUME_CLAIMS: ONE, f"count/{VOLUME_CLAIMS}": ONE}
    annotated = (claim["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    name = annotated if annotated is not None else (claim.get("spec") or {}).get("storageClassName") or ""
    size = _size(claim)
    if size is not None:
        found[STORAGE] = size
    if name:
        found[f"{name}{STORAGE_CLASS}{VOLUME_CLAIMS}"] = ONE
        if size is not None:
            found[f"{name}{STORAGE_CLASS}{STORAGE}"] = size
    return found


def _size(claim: Object) -> Amount | None:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    allocated = (claim.get("status") or {}).get("allocatedResources") or {}
    if "storage" not in requests:
        return None
    size = amounts.parsed({"storage": requests["storage"]})["storage"]
    if "storage" in allocated:
        size = max(size, amounts.parsed(allocated)["storage"], key=lambda amount: amount[0])
    return size[0].to_integral_value(rounding=ROUND_CEILING), size[1]


def volume_traits(claim: Object) -> Traits:
    """Return the attributes classes of a PersistentVolumeClaim: requested, current and target."""
    status = claim.get("status") or {}
    names = (
        (claim.get("spec") or {}).get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return {"VolumeAttributesClass": frozenset(name for name in names if name)}


def covers_volumes(name: str) -> bool:
    """Return whether this name of a quota covers PersistentVolumeClaims."""
    if name in (VOLUME_CLAIMS, STORAGE, f"count/{VOLUME_CLAIMS}"):
        return True
    return name.endswith((f"{STORAGE_CLASS}{VOLUME_CLAIMS}", f"{STORAGE_CLASS}{STORAGE}"))


# -- devices ----------------------------------------------------------------------------------------------------------


def device_usage(claim: Object, facts: Facts) -> Usage:
    """Return the usage of a ResourceClaim."""
    devices: Usage = {}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        alternatives = request.get("firstAvailable") or ()
        if alternatives:
            worst: Usage = {}
            for each in alternatives:
                if _count(each):
                    amounts.raise_to(worst, {each.get("deviceClassName", ""): amounts.number(_count(each))})
            amounts.add(devices, worst)
        elif request.get("exactly") is not None:
            exactly = request["exactly"]
            amounts.add(devices, {exactly.get("deviceClassName", ""): amounts.number(_count(exactly))})
    found: Usage = {f"count/{DEVICE_CLAIMS}": ONE}
    found.update({f"{name}{DEVICES}": amount for name, amount in devices.items()})
    found.update(_as_extended_resources(devices, _charged_already(claim, facts), facts))
    return found


def _count(request: Object) -> int:
    """Return the most devices of a request; none for an unknown mode."""
    mode = request.get("allocationMode")
    return int(request.get("count") or 0) if mode == "ExactCount" else MOST_DEVICES if mode == "All" else 0


def _as_extended_resources(devices: Usage, charged: Mapping[str, Amount], facts: Facts) -> Usage:
    requested: Usage = {}
    for name, amount in devices.items():
        if not name:
            continue
        requested[f"requests.{pods.DEVICE_CLASS}{name}"] = amount
        extended = facts.extended_resource(name)
        if extended:
            requested[f"requests.{extended}"] = amount
    return amounts.risen(requested, charged)


def _charged_already(claim: Object, facts: Facts) -> Usage:
    """Return the charged usage of the pod for whose extended resources this claim was made.

    Empty if it is no such claim, or if another claim of the pod is noted in its status or was created earlier."""
    meta = claim["metadata"]
    if (meta.get("annotations") or {}).get(EXTENDED_CLAIM) != "true":
        return {}
    owner = _owning_pod(claim)
    namespace, name = meta.get("namespace", ""), meta.get("name", "")
    pod = facts.pod(namespace, owner.get("name", "")) if owner else None
    if pod is None or pod["metadata"].get("uid") != owner.get("uid"):
        return {}
    recorded = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if recorded is not None:
        return pods.usage(pod, facts.now) if recorded.get("resourceClaimName") == name else {}
    mine = meta.get("creationTimestamp", ""), name
    for other in facts.claims(namespace, owner.get("uid", "")):
        other_meta = other["metadata"]
        marked = (other_meta.get("annotations") or {}).get(EXTENDED_CLAIM) == "true"
        earlier = (other_meta.get("creationTimestamp", ""), other_meta["name"]) < mine
        if marked and earlier and _owning_pod(other).get("uid") == owner.get("uid"):
            return {}
    return pods.usage(pod, facts.now)


def _owning_pod(claim: Object) -> Object:
    """Return the controller's owner reference if it is a pod, else {}."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            is_pod = (owner.get("kind"), owner.get("apiVersion")) == ("Pod", "v1")
            return dict(owner) if is_pod else {}
    return {}


def covers_devices(name: str, facts: Facts) -> bool:
    """Return whether this name of a quota covers ResourceClaims."""
    if name == f"count/{DEVICE_CLAIMS}" or name.endswith(DEVICES):
        return True
    _, requests, resource = name.partition("requests.")
    if _ or not requests:
        return False
    if resource.startswith(pods.DEVICE_CLASS):
        return facts.device_class(resource.removeprefix(pods.DEVICE_CLASS)) is not None
    if is_native(name):
        return False
    classes = facts.device_classes(resource)
    return any((each.get("spec") or {}).get("extendedResourceName") == resource for each in classes)
