"""How Kubernetes prints records in its messages: fields in the order of its own types, by their Go names, with what
was not given as null or as the zero of its type.

A table of the types that stand in messages of validation; each member is (Go name, JSON name, what it is): a value to
print when it is absent, or the name of another shape. Facts about those types, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Object = dict[str, Any]

_NIL: Final = None

SHAPES: Final[Mapping[str, tuple[tuple[str, str, Any], ...]]] = {
    "SecurityContext": (
        ("Capabilities", "capabilities", "*Capabilities"),
        ("Privileged", "privileged", _NIL),
        ("SELinuxOptions", "seLinuxOptions", "*SELinuxOptions"),
        ("WindowsOptions", "windowsOptions", "*WindowsOptions"),
        ("RunAsUser", "runAsUser", _NIL),
        ("RunAsGroup", "runAsGroup", _NIL),
        ("RunAsNonRoot", "runAsNonRoot", _NIL),
        ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", _NIL),
        ("AllowPrivilegeEscalation", "allowPrivilegeEscalation", _NIL),
        ("ProcMount", "procMount", _NIL),
        ("SeccompProfile", "seccompProfile", "*SeccompProfile"),
        ("AppArmorProfile", "appArmorProfile", "*SeccompProfile"),
    ),
    "Capabilities": (("Add", "add", _NIL), ("Drop", "drop", _NIL)),
    "SELinuxOptions": (
        ("User", "user", '""'),
        ("Role", "role", '""'),
        ("Type", "type", '""'),
        ("Level", "level", '""'),
    ),
    "WindowsOptions": (
        ("GMSACredentialSpecName", "gmsaCredentialSpecName", _NIL),
        ("GMSACredentialSpec", "gmsaCredentialSpec", _NIL),
        ("RunAsUserName", "runAsUserName", _NIL),
        ("HostProcess", "hostProcess", _NIL),
    ),
    "SeccompProfile": (("Type", "type", '""'), ("LocalhostProfile", "localhostProfile", _NIL)),
    "Taint": (
        ("Key", "key", '""'),
        ("Value", "value", '""'),
        ("Effect", "effect", '""'),
        ("TimeAdded", "timeAdded", _NIL),
    ),
    "ServicePort": (
        ("Name", "name", '""'),
        ("Protocol", "protocol", '""'),
        ("AppProtocol", "appProtocol", _NIL),
        ("Port", "port", 0),
        ("TargetPort", "targetPort", 0),
        ("NodePort", "nodePort", 0),
    ),
    "RoleRef": (("APIGroup", "apiGroup", '""'), ("Kind", "kind", '""'), ("Name", "name", '""')),
    "ParentReference": (
        ("Group", "group", '""'),
        ("Resource", "resource", '""'),
        ("Namespace", "namespace", '""'),
        ("Name", "name", '""'),
    ),
    "CSINodeDriver": (
        ("Name", "name", '""'),
        ("NodeID", "nodeID", '""'),
        ("TopologyKeys", "topologyKeys", _NIL),
        ("Allocatable", "allocatable", "*VolumeNodeResources"),
    ),
    "VolumeNodeResources": (("Count", "count", _NIL),),
    "PodResourceClaim": (
        ("Name", "name", '""'),
        ("ResourceClaimName", "resourceClaimName", _NIL),
        ("ResourceClaimTemplateName", "resourceClaimTemplateName", _NIL),
    ),
    "NodeAddress": (("Type", "type", '""'), ("Address", "address", '""')),
    "FlowDistinguisherMethod": (("Type", "type", '""'),),
    "ResourceClaimSpec": (("Devices", "devices", "DeviceClaim"),),
    "DeviceClaim": (
        ("Requests", "requests", "[]DeviceRequest"),
        ("Constraints", "constraints", "[]DeviceConstraint"),
        ("Config", "config", "[]DeviceClaimConfiguration"),
    ),
    "DeviceRequest": (
        ("Name", "name", '""'),
        ("Exactly", "exactly", "*ExactDeviceRequest"),
        ("FirstAvailable", "firstAvailable", "[]DeviceSubRequest"),
    ),
    "ExactDeviceRequest": (
        ("DeviceClassName", "deviceClassName", '""'),
        ("Selectors", "selectors", "[]DeviceSelector"),
        ("AllocationMode", "allocationMode", '""'),
        ("Count", "count", 0),
        ("AdminAccess", "adminAccess", _NIL),
        ("Tolerations", "tolerations", _NIL),
        ("Capacity", "capacity", _NIL),
    ),
    "DeviceSubRequest": (
        ("Name", "name", '""'),
        ("DeviceClassName", "deviceClassName", '""'),
        ("Selectors", "selectors", "[]DeviceSelector"),
        ("AllocationMode", "allocationMode", '""'),
        ("Count", "count", 0),
        ("Tolerations", "tolerations", _NIL),
        ("Capacity", "capacity", _NIL),
    ),
    "DeviceSelector": (("CEL", "cel", "*CELDeviceSelector"),),
    "CELDeviceSelector": (("Expression", "expression", '""'),),
    "DeviceConstraint": (
        ("Requests", "requests", _NIL),
        ("MatchAttribute", "matchAttribute", _NIL),
        ("DistinctAttribute", "distinctAttribute", _NIL),
    ),
    "DeviceClaimConfiguration": (("Requests", "requests", _NIL), ("Opaque", "opaque", "*OpaqueDeviceConfiguration")),
    "OpaqueDeviceConfiguration": (("Driver", "driver", '""'), ("Parameters", "parameters", _NIL)),
}


def shape(obj: Mapping[str, Any] | None, name: str) -> Object | None:
    """Return a record as Kubernetes prints it. Example: ({"kind": "Role"}, "RoleRef") ->
    {"APIGroup": "", "Kind": "Role", "Name": ""}."""
    if obj is None:
        return None
    return {go: _member(obj.get(member), what) for go, member, what in SHAPES[name]}


def _member(value: Any, what: Any) -> Any:
    if isinstance(what, str) and what != '""':
        name = what.lstrip("*[]")
        if what.startswith("[]"):
            return None if value is None else [shape(each, name) for each in value]
        return shape(value if value is not None or what.startswith("*") else {}, name)
    if value is None:
        return "" if what == '""' else what
    return value
