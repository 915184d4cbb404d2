"""Evaluators, one per resource: the writes to charge, the names in quotas that cover it, and the usage of objects.

Kinds without rules of their own are counted, as count/RESOURCE.GROUP. Some have an older, shorter name, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING
from typing import Any, Final, NamedTuple

from kubechronicle.api.builtin.common.resource_amounts import HUGE_PAGES, is_native
from kubechronicle.api.quota import amounts, pods
from kubechronicle.api.quota.amounts import ONE, ZERO, Amount, Usage
from kubechronicle.api.quota.scopes import Traits
from kubechronicle.api.values.objects import Object

# -- claims ------------------------------------------------------------------------------------------------------------
#
# Usage of claims: storage of PersistentVolumeClaims, devices of ResourceClaims.
#
# A volume's size also counts for its storage class. A size allocated by a resize counts while it is greater than the
# requested size. Devices count per class; of alternatives, the worst case counts. A pod can also request a device class
# as an extended resource. So its devices count against quotas by that name as well, unless the pod of the claim has
# been charged already (KEP-5004).
#
#     claim of 10Gi, class gold  ->  requests.storage 10Gi, gold.storageclass.storage.k8s.io/requests.storage 10Gi
#     request of 2 devices of class gpu  ->  gpu.deviceclass.resource.k8s.io/devices 2


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


# -- facts -------------------------------------------------------------------------------------------------------------
#
# Facts beyond the object that measuring it may need.


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The time, and functions that look up other objects, each called only if needed.

    ``device_class(name)``: the DeviceClass, None if it does not exist.
    ``device_classes(text)``: those of the cluster whose JSON has the text: only they need be decoded.
    ``claims(namespace, text)``: its ResourceClaims, likewise.
    ``pod(namespace, name)``: the Pod, None if it does not exist.
    """

    now: datetime
    device_class: Callable[[str], Object | None]
    device_classes: Callable[[str], Iterable[Object]]
    claims: Callable[[str, str], Iterable[Object]]
    pod: Callable[[str, str], Object | None]

    def extended_resource(self, class_name: str) -> str:
        """Return the extended resource of a device class, "" if it names none (KEP-5004)."""
        device_class = self.device_class(class_name)
        return (device_class.get("spec") or {}).get("extendedResourceName") or "" if device_class is not None else ""


CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"

IGNORED: Final = frozenset(
    ("bindings", "componentstatuses", "events", "localsubjectaccessreviews.authorization.k8s.io")
)
"""Namespaced resources that no quota covers."""

SHORT_NAMES: Final = frozenset(("configmaps", "replicationcontrollers", "resourcequotas", "secrets"))
"""Resources that quotas also count by the plain name."""


class Measure(NamedTuple):
    """The usage of an object, and its traits for scopes."""

    usage: Usage
    traits: Traits


class Evaluator:
    """Counts the objects of a resource ("deployments.apps"). Base of the evaluators with more rules."""

    constant: Measure | None
    """The usage of every object, if it is the same for all."""
    keeps = True
    """True if the usage of an unchanged object never changes."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self._names = frozenset((f"count/{resource}", *([resource] if resource in SHORT_NAMES else ())))
        self.constant = Measure(dict.fromkeys(self._names, ONE), {})

    def handles(self, operation: str, subresource: str, new: Object, old: Object | None) -> bool:
        """Return whether such a write is charged."""
        return operation == CREATE and not subresource

    def covers(self, name: str, facts: Facts) -> bool:
        """Return whether this name of a quota covers this resource."""
        return name in self._names

    def measure(self, obj: Object, facts: Facts) -> Measure:
        """Return the usage and traits of an object."""
        if self.constant is None:
            raise NotImplementedError
        return self.constant

    def missing(self, obj: Object, required: Collection[str]) -> str:
        """Return the message about values missing from the object that these names of a quota demand, "" if none."""
        return ""

    def covered(self, names: Mapping[str, Any], facts: Facts) -> list[str]:
        """Return the names that cover this resource, sorted."""
        return sorted(name for name in names if self.covers(name, facts))


class _Pods(Evaluator):
    constant = None
    _PREFIXES: Final = (HUGE_PAGES, f"requests.{HUGE_PAGES}", f"requests.{pods.DEVICE_CLASS}")

    def __init__(self) -> None:
        self.resource = "pods"
        compute = (f"{side}{name}" for side in ("", "requests.", "limits.") for name in pods.COMPUTE)
        self._names = frozenset((pods.COUNT, "pods", *compute))

    def handles(self, operation: str, subresource: str, new: Object, old: Object | None) -> bool:
        """Charge pods when they are created, resized, or get or lose a deadline, which changes their scopes."""
        if subresource:
            return subresource == "resize" and operation == UPDATE
        if operation == CREATE:
            return True
        deadline = ((each or {}).get("spec", {}).get("activeDeadlineSeconds") is None for each in (new, old))
        return operation == UPDATE and len(set(deadline)) == 2

    def covers(self, name: str, facts: Facts) -> bool:
        return (
            name in self._names
            or name.startswith(self._PREFIXES)
            or (name.startswith("requests.") and not is_native(name))
        )

    def measure(self, obj: Object, facts: Facts) -> Measure:
        return Measure(pods.usage(obj, facts.now), pods.traits(obj))

    def missing(self, obj: Object, required: Collection[str]) -> str:
        return pods.missing(obj, required)


class _Services(Evaluator):
    constant = None

    def __init__(self) -> None:
        self.resource = "services"
        self._names = frozenset(("count/services", "services", "services.nodeports", "services.loadbalancers"))

    def handles(self, operation: str, subresource: str, new: Object, old: Object | None) -> bool:
        """Charge updates, too, because a service can change its type."""
        return not subresource

    def measure(self, obj: Object, facts: Facts) -> Measure:
        spec = obj.get("spec") or {}
        ports, kind = spec.get("ports") or (), spec.get("type")
        balanced = kind == "LoadBalancer"
        node_ports = len(ports) if balanced or kind == "NodePort" else 0
        if balanced and spec.get("allocateLoadBalancerNodePorts") is False:
            node_ports = sum(bool(port.get("nodePort")) for port in ports)
        usage = {
            "count/services": ONE,
            "services": ONE,
            "services.nodeports": amounts.number(node_ports),
            "services.loadbalancers": ONE if balanced else ZERO,
        }
        return Measure(usage, {})


class _VolumeClaims(Evaluator):
    constant = None

    def __init__(self) -> None:
        self.resource = VOLUME_CLAIMS

    def handles(self, operation: str, subresource: str, new: Object, old: Object | None) -> bool:
        """Charge updates, too, because claims grow; their status has the allocated size and the attributes class."""
        return not subresource or (subresource == "status" and operation == UPDATE)

    def covers(self, name: str, facts: Facts) -> bool:
        return covers_volumes(name)

    def measure(self, obj: Object, facts: Facts) -> Measure:
        return Measure(volume_usage(obj), volume_traits(obj))


class _DeviceClaims(Evaluator):
    constant = None
    keeps = False  # depends on device classes and pods

    def __init__(self) -> None:
        self.resource = DEVICE_CLAIMS

    def handles(self, operation: str, subresource: str, new: Object, old: Object | None) -> bool:
        return not subresource

    def covers(self, name: str, facts: Facts) -> bool:
        return covers_devices(name, facts)

    def measure(self, obj: Object, facts: Facts) -> Measure:
        return Measure(device_usage(obj, facts), {})


_SPECIAL: Final[Mapping[str, Evaluator]] = {
    each.resource: each for each in (_Pods(), _Services(), _VolumeClaims(), _DeviceClaims())
}


def evaluator_of(resource: str) -> Evaluator | None:
    """Return the evaluator of a storage resource, None if no quota covers it."""
    if resource in IGNORED:
        return None
    return _SPECIAL.get(resource) or Evaluator(resource)
