"""Defaults of pods and their parts.

A constant value fills a field that is absent or an empty string. Functions change their object in place. They run after
the object's constant values and before all nested objects. Source: Kubernetes' ``apis/core/v1/defaults``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from kubechronicle.api.values import quantity
from kubechronicle.api.values.objects import Object

FILE_MODE: Final = 0o644

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "core.v1.PodSpec": {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
    },
    "core.v1.ContainerPort": {"protocol": "TCP"},
    "core.v1.HTTPGetAction": {"path": "/", "scheme": "HTTP"},
    "core.v1.GRPCAction": {"service": ""},
    "core.v1.ObjectFieldSelector": {"apiVersion": "v1"},
    "core.v1.SecretVolumeSource": {"defaultMode": FILE_MODE},
    "core.v1.ConfigMapVolumeSource": {"defaultMode": FILE_MODE},
    "core.v1.DownwardAPIVolumeSource": {"defaultMode": FILE_MODE},
    "core.v1.ProjectedVolumeSource": {"defaultMode": FILE_MODE},
    "core.v1.ServiceAccountTokenProjection": {"expirationSeconds": 3600},
    "core.v1.HostPathVolumeSource": {"type": ""},
    "core.v1.ISCSIVolumeSource": {"iscsiInterface": "default"},
    "core.v1.RBDVolumeSource": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "core.v1.AzureDiskVolumeSource": {
        "cachingMode": "ReadWrite",
        "kind": "Shared",
        "fsType": "ext4",
        "readOnly": False,
    },
    "core.v1.ScaleIOVolumeSource": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def image_tag(image: str) -> str:
    """Return the tag of an image: ``latest`` if it has neither tag nor digest, "" if it has only a digest."""
    name, at, _ = image.partition("@")
    last = name.rpartition("/")[2]
    _, colon, tag = last.partition(":")
    if colon:
        return tag
    return "" if at else "latest"


def container(obj: Object) -> None:
    """Set the pull policy and the termination message of a container of any kind."""
    if not obj.get("imagePullPolicy"):
        obj["imagePullPolicy"] = "Always" if image_tag(obj.get("image", "")) == "latest" else "IfNotPresent"
    if not obj.get("terminationMessagePath"):
        obj["terminationMessagePath"] = "/dev/termination-log"
    if not obj.get("terminationMessagePolicy"):
        obj["terminationMessagePolicy"] = "File"


def pod_spec(obj: Object) -> None:
    """Copy the service account's name to its deprecated field, or the other way."""
    name = obj.get("serviceAccountName") or obj.get("serviceAccount")
    if name:
        obj["serviceAccountName"] = obj["serviceAccount"] = name


_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


def probe(obj: Object) -> None:
    """Replace zero values of a probe by the defaults."""
    for name, value in _PROBE.items():
        if not obj.get(name):
            obj[name] = value


def volume(obj: Object) -> None:
    """Make a volume without a source an empty directory, and set the pull policy of an image."""
    if not obj.keys() - {"name"}:
        obj["emptyDir"] = {}
    image = obj.get("image")
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = "Always" if image_tag(image.get("reference", "")) == "latest" else "IfNotPresent"


def resource_requirements(obj: Object) -> None:
    """Round amounts up to a thousandth."""
    for part in ("limits", "requests"):
        for name, amount in (obj.get(part) or {}).items():
            if amount.endswith(("n", "u")) or "." in amount or "e-" in amount:
                obj[part][name] = _round_to_milli(amount)


def _round_to_milli(amount: str) -> str:
    value = quantity.value_of(amount)
    thousandths = -((-value * 1000) // 1)  # rounds up
    return quantity.canonical(f"{thousandths.quantize(Decimal(1))}m")


def pod(obj: Object) -> None:
    """Set requests, host ports and service links: defaults of pods that templates do not get."""
    spec = obj["spec"]
    for held in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = held.get("resources") or {}
        if resources.get("limits"):
            requests = resources.setdefault("requests", {})
            for name, amount in resources["limits"].items():
                requests.setdefault(name, amount)
        if spec.get("hostNetwork"):
            for port in held.get("ports") or ():
                if not port.get("hostPort"):
                    port["hostPort"] = port.get("containerPort", 0)
    _pod_level_requests(spec)
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True


_POD_LEVEL: Final = ("cpu", "memory")


def _pod_level_requests(spec: Object) -> None:
    """Derive the requests of the pod as a whole from its containers' requests or its own limits."""
    resources = spec.get("resources")
    if not resources or not resources.get("limits"):
        return
    requests = dict(resources.get("requests") or {})
    for name, total in container_requests(spec).items():
        if name in _POD_LEVEL:
            requests.setdefault(name, total)
    for name, amount in resources["limits"].items():
        if name in _POD_LEVEL or name.startswith("hugepages-"):
            requests.setdefault(name, amount)
    if requests:
        resources["requests"] = requests


def container_requests(spec: Object, part: str = "requests") -> dict[str, str]:
    """Return the total requests (or limits) of a pod's containers, or an init container's peak if that is higher."""
    total: dict[str, Decimal] = {}
    for held in spec.get("containers") or ():
        _add(total, held, part)
    sidecars: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    for held in spec.get("initContainers") or ():
        if held.get("restartPolicy") == "Always":
            _add(total, held, part)
            _add(sidecars, held, part)
        for name, amount in ((held.get("resources") or {}).get(part) or {}).items():  # the others are as before
            value = sidecars.get(name, Decimal(0))
            if held.get("restartPolicy") != "Always":
                value += quantity.value_of(amount)
            peak[name] = max(peak.get(name, value), value)
    for name, value in peak.items():
        total[name] = max(total.get(name, value), value)
    return {name: quantity.canonical(format(value, "f")) for name, value in total.items()}


def _add(total: dict[str, Decimal], held: Object, part: str) -> None:
    for name, amount in ((held.get("resources") or {}).get(part) or {}).items():
        total[name] = total.get(name, Decimal(0)) + quantity.value_of(amount)


def pod_status(obj: Object) -> None:
    """Copy podIP to podIPs or the other way: podIP is the first of podIPs."""
    alone, several = obj.get("podIP"), obj.get("podIPs")
    if alone and not several:
        obj["podIPs"] = [{"ip": alone}]
    elif several and not alone and several[0].get("ip"):
        obj["podIP"] = several[0]["ip"]


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "core.v1.Container": container,
    "core.v1.EphemeralContainer": container,
    "core.v1.PodSpec": pod_spec,
    "core.v1.Probe": probe,
    "core.v1.Volume": volume,
    "core.v1.ResourceRequirements": resource_requirements,
    "core.v1.Pod": pod,
    "core.v1.PodStatus": pod_status,
}
