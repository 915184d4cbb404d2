"""How the kinds of networking, storage, scheduling, leases and devices are shown.

Source: Kubernetes' ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.cell_text import Since, joined, selector_text
from kubechronicle.api.builtin.columns_core import ingress_points
from kubechronicle.api.builtin.printer import AGE, NAME, Column, Object, Printer, age_of, at, counted, field, name_of

LIST_SHOWN: Final = 3


def _aged(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), age_of(obj, since)]


# -- networking and discovery -----------------------------------------------------------------------------------------


def _hosts(rules: Sequence[Object]) -> str:
    shown = [rule["host"] for rule in rules if rule.get("host")][:LIST_SHOWN]
    if not shown:
        return "*"
    more = len(rules) - LIST_SHOWN
    # Rules without a host count among those not shown only when three hosts are.
    return ",".join(shown) + (f" + {more} more..." if more > 0 and len(shown) == LIST_SHOWN else "")


def _ingress(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        name_of(obj),
        spec.get("ingressClassName") or "<none>",
        _hosts(spec.get("rules") or ()),
        ingress_points(obj.get("status")),
        "80, 443" if spec.get("tls") else "80",
        age_of(obj, since),
    ]


def _ingress_class(obj: Object, since: Since) -> list[Any]:
    parameters = at(obj, "spec", "parameters")
    text = "<none>"
    if parameters is not None:
        group = parameters.get("apiGroup")
        text = f"{parameters.get('kind', '')}{f'.{group}' if group else ''}/{parameters.get('name', '')}"
    return [name_of(obj), at(obj, "spec", "controller", default=""), text, age_of(obj, since)]


def _network_policy(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), selector_text(at(obj, "spec", "podSelector")), age_of(obj, since)]


def _service_cidr(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), ",".join(at(obj, "spec", "cidrs", default=())), age_of(obj, since)]


def _ip_address(obj: Object, since: Since) -> list[Any]:
    parent = at(obj, "spec", "parentRef")
    text = "<none>"
    if parent is not None:
        resource = ".".join(filter(None, (parent.get("resource"), parent.get("group")))).lower()
        text = "/".join(filter(None, (resource, parent.get("namespace"), parent.get("name"))))
    # The age has no column of its own, and is there all the same.
    return [name_of(obj), text, age_of(obj, since)]


def _slice_port(port: Object) -> str:
    number = port.get("port")
    return str(number) if number is not None else port.get("name") or "*"


def _endpoint_slice(obj: Object, since: Since) -> list[Any]:
    addresses = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [
        name_of(obj),
        obj.get("addressType") or "",
        joined([_slice_port(port) for port in obj.get("ports") or ()], LIST_SHOWN, empty="<unset>"),
        joined(addresses, LIST_SHOWN, empty="<unset>"),
        age_of(obj, since),
    ]


# -- storage ----------------------------------------------------------------------------------------------------------

_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_DEFAULT_ATTRIBUTES_CLASS: Final = ("volumeattributesclass.alpha.kubernetes.io/is-default-class",)


def _marked_default(obj: Object, annotations: Sequence[str]) -> str:
    given = obj["metadata"].get("annotations") or {}
    return f"{name_of(obj)} (default)" if any(given.get(key) == "true" for key in annotations) else name_of(obj)


def _storage_class(obj: Object, since: Since) -> list[Any]:
    return [
        _marked_default(obj, _DEFAULT_CLASS),
        obj.get("provisioner") or "",
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        age_of(obj, since),
    ]


def _attributes_class(obj: Object, since: Since) -> list[Any]:
    return [_marked_default(obj, _DEFAULT_ATTRIBUTES_CLASS), obj.get("driverName") or "", age_of(obj, since)]


def _volume_attachment(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        name_of(obj),
        spec.get("attacher") or "",
        at(spec, "source", "persistentVolumeName", default=""),
        spec.get("nodeName") or "",
        at(obj, "status", "attached", default=False),
        age_of(obj, since),
    ]


def _csi_node(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), len(at(obj, "spec", "drivers", default=())), age_of(obj, since)]


def _csi_driver(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    requests = spec.get("tokenRequests")
    audiences = "<unset>" if requests is None else ",".join(request.get("audience", "") for request in requests)
    return [
        name_of(obj),
        spec.get("attachRequired") is not False,
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        audiences,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or "<none>",
        age_of(obj, since),
    ]


# -- scheduling, leases, devices --------------------------------------------------------------------------------------


def _priority_class(obj: Object, since: Since) -> list[Any]:
    return [
        name_of(obj),
        obj.get("value") or 0,
        bool(obj.get("globalDefault")),
        age_of(obj, since),
        obj.get("preemptionPolicy") or "",
    ]


def _runtime_class(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), obj.get("handler") or "", age_of(obj, since)]


def _lease(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), at(obj, "spec", "holderIdentity", default=""), age_of(obj, since)]


def _claim_state(obj: Object) -> str:
    deleted = bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if at(obj, "status", "allocation") is None:
        states += [] if deleted else ["pending"]
    else:
        states += ["allocated", *(["reserved"] if at(obj, "status", "reservedFor") else [])]
    return ",".join(states)


def _resource_claim(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), _claim_state(obj), age_of(obj, since)]


def _resource_slice(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    pool = at(spec, "pool", "name", default="")
    return [name_of(obj), spec.get("nodeName") or "", spec.get("driver") or "", pool, age_of(obj, since)]


_DRIVER: Final = "storage.v1.CSIDriverSpec"
_CLASS: Final = "storage.v1.StorageClass"
_ATTACHMENT: Final = "storage.v1.VolumeAttachmentSpec"

PRINTERS: Final[Mapping[str, Printer]] = {
    "ingresses.networking.k8s.io": Printer(
        (
            NAME,
            Column(
                "Class",
                text="The name of the IngressClass resource that should be used for additional configuration",
            ),
            Column("Hosts", text="Hosts that incoming requests are matched against before the ingress rule"),
            Column("Address", text="Address is a list containing ingress points for the load-balancer"),
            Column("Ports", text="Ports of TLS configurations that open"),
            AGE,
        ),
        _ingress,
    ),
    "ingressclasses.networking.k8s.io": Printer(
        (
            NAME,
            Column("Controller", text="Controller that is responsible for handling this class"),
            Column("Parameters", text="A reference to a resource with additional parameters"),
            AGE,
        ),
        _ingress_class,
    ),
    "networkpolicies.networking.k8s.io": Printer(
        (NAME, field("Pod-Selector", "networking.v1.NetworkPolicySpec.podSelector"), AGE), _network_policy
    ),
    "servicecidrs.networking.k8s.io": Printer(
        (NAME, field("CIDRs", "networking.v1.ServiceCIDRSpec.cidrs"), AGE), _service_cidr
    ),
    "ipaddresses.networking.k8s.io": Printer(
        (NAME, field("ParentRef", "networking.v1.IPAddressSpec.parentRef")), _ip_address
    ),
    "endpointslices.discovery.k8s.io": Printer(
        (
            NAME,
            field("AddressType", "discovery.v1.EndpointSlice.addressType"),
            field("Ports", "discovery.v1.EndpointSlice.ports"),
            field("Endpoints", "discovery.v1.EndpointSlice.endpoints"),
            AGE,
        ),
        _endpoint_slice,
    ),
    "storageclasses.storage.k8s.io": Printer(
        (
            NAME,
            field("Provisioner", f"{_CLASS}.provisioner"),
            field("ReclaimPolicy", f"{_CLASS}.reclaimPolicy"),
            field("VolumeBindingMode", f"{_CLASS}.volumeBindingMode"),
            field("AllowVolumeExpansion", f"{_CLASS}.allowVolumeExpansion"),
            AGE,
        ),
        _storage_class,
    ),
    "volumeattributesclasses.storage.k8s.io": Printer(
        (NAME, field("DriverName", "storage.v1.VolumeAttributesClass.driverName"), AGE), _attributes_class
    ),
    "volumeattachments.storage.k8s.io": Printer(
        (
            NAME,
            Column("Attacher", field=f"{_ATTACHMENT}.attacher", format="name"),
            field("PV", "storage.v1.VolumeAttachmentSource.persistentVolumeName"),
            field("Node", f"{_ATTACHMENT}.nodeName"),
            field("Attached", "storage.v1.VolumeAttachmentStatus.attached", "boolean"),
            AGE,
        ),
        _volume_attachment,
    ),
    "csinodes.storage.k8s.io": Printer(
        (
            NAME,
            counted("Drivers", "Drivers indicates the number of CSI drivers registered on the node"),
            AGE,
        ),
        _csi_node,
    ),
    "csidrivers.storage.k8s.io": Printer(
        (
            NAME,
            field("AttachRequired", f"{_DRIVER}.attachRequired", "boolean"),
            field("PodInfoOnMount", f"{_DRIVER}.podInfoOnMount", "boolean"),
            field("StorageCapacity", f"{_DRIVER}.storageCapacity", "boolean"),
            field("TokenRequests", f"{_DRIVER}.tokenRequests"),
            field("RequiresRepublish", f"{_DRIVER}.requiresRepublish", "boolean"),
            field("Modes", f"{_DRIVER}.volumeLifecycleModes"),
            AGE,
        ),
        _csi_driver,
    ),
    "priorityclasses.scheduling.k8s.io": Printer(
        (
            NAME,
            field("Value", "scheduling.v1.PriorityClass.value", "integer"),
            field("Global-Default", "scheduling.v1.PriorityClass.globalDefault", "boolean"),
            AGE,
            field("PreemptionPolicy", "scheduling.v1.PriorityClass.preemptionPolicy"),
        ),
        _priority_class,
    ),
    # Kubernetes looks for this description in the metadata, where it is not.
    "runtimeclasses.node.k8s.io": Printer((NAME, Column("Handler"), AGE), _runtime_class),
    "leases.coordination.k8s.io": Printer(
        (NAME, field("Holder", "coordination.v1.LeaseSpec.holderIdentity"), AGE), _lease
    ),
    "deviceclasses.resource.k8s.io": Printer((NAME, AGE), _aged),
    "resourceclaimtemplates.resource.k8s.io": Printer((NAME, AGE), _aged),
    "resourceclaims.resource.k8s.io": Printer(
        (
            NAME,
            Column("State", text="A summary of the current state (allocated, pending, reserved, etc.)."),
            AGE,
        ),
        _resource_claim,
    ),
    "resourceslices.resource.k8s.io": Printer(
        (
            NAME,
            field("Node", "resource.v1.ResourceSliceSpec.nodeName"),
            field("Driver", "resource.v1.ResourceSliceSpec.driver"),
            field("Pool", "resource.v1.ResourcePool.name"),
            AGE,
        ),
        _resource_slice,
    ),
}
"""Storage resource -> printer."""
