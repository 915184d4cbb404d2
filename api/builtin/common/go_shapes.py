"""Go structs as Kubernetes prints them in validation messages.

Fields are in the order of Kubernetes' internal types, with Go names. An absent field is printed as null or as its
type's zero value. ``shape`` prints the small types of the table SHAPES, ``record`` the types of go_types.py.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.go_types import TYPES
from kubechronicle.api.builtin.common.line_differences import unified
from kubechronicle.api.errors.field_errors import HTML_ESCAPES
from kubechronicle.api.values.objects import Object

_NIL: Final = None

SHAPES: Final[Mapping[str, tuple[tuple[str, str, Any], ...]]] = {
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
    "Toleration": (
        ("Key", "key", '""'),
        ("Operator", "operator", '""'),
        ("Value", "value", '""'),
        ("Effect", "effect", '""'),
        ("TolerationSeconds", "tolerationSeconds", _NIL),
    ),
    "NodeAddress": (("Type", "type", '""'), ("Address", "address", '""')),
    "FlowDistinguisherMethod": (("Type", "type", '""'),),
    "ObjectReference": (
        ("Kind", "kind", '""'),
        ("Namespace", "namespace", '""'),
        ("Name", "name", '""'),
        ("UID", "uid", '""'),
        ("APIVersion", "apiVersion", '""'),
        ("ResourceVersion", "resourceVersion", '""'),
        ("FieldPath", "fieldPath", '""'),
    ),
    "EventSource": (("Component", "component", '""'), ("Host", "host", '""')),
    "SigningCondition": (
        ("Type", "type", '""'),
        ("Status", "status", '""'),
        ("Reason", "reason", '""'),
        ("Message", "message", '""'),
        ("LastUpdateTime", "lastUpdateTime", _NIL),
        ("LastTransitionTime", "lastTransitionTime", _NIL),
    ),
    "NamedReference": (("Name", "name", '""'),),
    "FlowSchemaSpec": (
        ("PriorityLevelConfiguration", "priorityLevelConfiguration", "NamedReference"),
        ("MatchingPrecedence", "matchingPrecedence", 0),
        ("DistinguisherMethod", "distinguisherMethod", "*FlowDistinguisherMethod"),
        ("Rules", "rules", "[]PolicyRulesWithSubjects"),
    ),
    "PolicyRulesWithSubjects": (
        ("Subjects", "subjects", "[]FlowSubject"),
        ("ResourceRules", "resourceRules", "[]ResourcePolicyRule"),
        ("NonResourceRules", "nonResourceRules", "[]NonResourcePolicyRule"),
    ),
    "FlowSubject": (
        ("Kind", "kind", '""'),
        ("User", "user", "*NamedReference"),
        ("Group", "group", "*NamedReference"),
        ("ServiceAccount", "serviceAccount", "*NamespacedReference"),
    ),
    "NamespacedReference": (("Namespace", "namespace", '""'), ("Name", "name", '""')),
    "ResourcePolicyRule": (
        ("Verbs", "verbs", _NIL),
        ("APIGroups", "apiGroups", _NIL),
        ("Resources", "resources", _NIL),
        ("ClusterScope", "clusterScope", False),
        ("Namespaces", "namespaces", _NIL),
    ),
    "NonResourcePolicyRule": (("Verbs", "verbs", _NIL), ("NonResourceURLs", "nonResourceURLs", _NIL)),
    "PriorityLevelConfigurationSpec": (
        ("Type", "type", '""'),
        ("Limited", "limited", "*LimitedPriorityLevel"),
        ("Exempt", "exempt", "*ExemptPriorityLevel"),
    ),
    "LimitedPriorityLevel": (
        ("NominalConcurrencyShares", "nominalConcurrencyShares", 0),
        ("LimitResponse", "limitResponse", "LimitResponse"),
        ("LendablePercent", "lendablePercent", _NIL),
        ("BorrowingLimitPercent", "borrowingLimitPercent", _NIL),
    ),
    "ExemptPriorityLevel": (
        ("NominalConcurrencyShares", "nominalConcurrencyShares", _NIL),
        ("LendablePercent", "lendablePercent", _NIL),
    ),
    "LimitResponse": (("Type", "type", '""'), ("Queuing", "queuing", "*QueuingConfiguration")),
    "QueuingConfiguration": (
        ("Queues", "queues", 0),
        ("HandSize", "handSize", 0),
        ("QueueLengthLimit", "queueLengthLimit", 0),
    ),
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
        ("Tolerations", "tolerations", "[]Toleration"),
        ("Capacity", "capacity", "*CapacityRequirements"),
    ),
    "CapacityRequirements": (("Requests", "requests", "{}"),),
    "DeviceSubRequest": (
        ("Name", "name", '""'),
        ("DeviceClassName", "deviceClassName", '""'),
        ("Selectors", "selectors", "[]DeviceSelector"),
        ("AllocationMode", "allocationMode", '""'),
        ("Count", "count", 0),
        ("Tolerations", "tolerations", "[]Toleration"),
        ("Capacity", "capacity", "*CapacityRequirements"),
    ),
    "DeviceSelector": (("CEL", "cel", "*CELDeviceSelector"),),
    "CELDeviceSelector": (("Expression", "expression", '""'),),
    "DeviceConstraint": (
        ("Requests", "requests", _NIL),
        ("MatchAttribute", "matchAttribute", _NIL),
        ("DistinctAttribute", "distinctAttribute", _NIL),
    ),
    "DeviceClaimConfiguration": (("Requests", "requests", _NIL), ("Opaque", "opaque", "*OpaqueDeviceConfiguration")),
    "DeviceAttribute": (
        ("IntValue", "int", _NIL),
        ("BoolValue", "bool", _NIL),
        ("StringValue", "string", _NIL),
        ("VersionValue", "version", _NIL),
        ("IntValues", "ints", _NIL),
        ("BoolValues", "bools", _NIL),
        ("StringValues", "strings", _NIL),
        ("VersionValues", "versions", _NIL),
    ),
    "NodeSelector": (("NodeSelectorTerms", "nodeSelectorTerms", "[]NodeSelectorTerm"),),
    "NodeSelectorTerm": (
        ("MatchExpressions", "matchExpressions", "[]NodeSelectorRequirement"),
        ("MatchFields", "matchFields", "[]NodeSelectorRequirement"),
    ),
    "NodeSelectorRequirement": (("Key", "key", '""'), ("Operator", "operator", '""'), ("Values", "values", _NIL)),
    "AllocationResult": (
        ("Devices", "devices", "DeviceAllocationResult"),
        ("NodeSelector", "nodeSelector", "*NodeSelector"),
        ("AllocationTimestamp", "allocationTimestamp", _NIL),
    ),
    "DeviceAllocationResult": (
        ("Results", "results", "[]DeviceRequestAllocationResult"),
        ("Config", "config", "[]DeviceAllocationConfiguration"),
    ),
    "DeviceRequestAllocationResult": (
        ("Request", "request", '""'),
        ("Driver", "driver", '""'),
        ("Pool", "pool", '""'),
        ("Device", "device", '""'),
        ("AdminAccess", "adminAccess", _NIL),
        ("Tolerations", "tolerations", _NIL),
        ("BindingConditions", "bindingConditions", _NIL),
        ("BindingFailureConditions", "bindingFailureConditions", _NIL),
        ("ShareID", "shareID", _NIL),
        ("ConsumedCapacity", "consumedCapacity", "{}"),
    ),
    "DeviceAllocationConfiguration": (
        ("Source", "source", '""'),
        ("Requests", "requests", _NIL),
        ("Opaque", "opaque", "*OpaqueDeviceConfiguration"),
    ),
    "OpaqueDeviceConfiguration": (("Driver", "driver", '""'), ("Parameters", "parameters", _NIL)),
}
"""Type -> members: (Go name, JSON name, value to print when absent or the name of another shape).

A shape's name may have the prefix "*" (optional) or "[]" (list). "{}" is a map.
"""

_METADATA: Final = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
"""Members of metadata, printed by their JSON names and without empty values."""
_METADATA_ITEMS: Final[Mapping[str, tuple[str, ...]]] = {
    "ownerReferences": ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"),
    "managedFields": ("manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"),
}
"""Members of the items of such lists, in their order."""
_ZEROS: Final = {"": "", "i": 0, "b": False, "n": None, "l": None, "m": None, "q": "0", "p": 0, "s": None}
_ON_SPEC: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
"""Members of Kubernetes' internal PodSecurityContext that are fields of the pod's spec in the API."""


@functools.cache
def _members(name: str) -> tuple[tuple[str, str, str], ...]:
    """Return (Go name, JSON name, type code) for each member of a type of go_types.py."""
    found: list[tuple[str, str, str]] = []
    for part in TYPES[name].split():
        if part == "..ObjectMeta":
            found += [(member, member, "o") for member in _METADATA]
        elif part.startswith(".."):
            found += _members(part[2:])
        else:
            named, _, code = part.partition(":")
            go, _, member = named.partition("=")
            found.append((go, member or _lower_first(go), code))
    return tuple(found)


def _lower_first(name: str) -> str:
    """Return the JSON name of a Go name. Example: FSType -> fsType, IQN -> iqn, HostPath -> hostPath."""
    count = next((index for index, letter in enumerate(name) if not letter.isupper()), len(name))
    if 1 < count < len(name) and name[count].islower():
        count -= 1
    return name[:count].lower() + name[count:]


def record(obj: Mapping[str, Any] | None, name: str, *, compared: bool = False) -> Object | None:
    """Return a record of a type of go_types.py as Kubernetes prints it.

    With ``compared``, empty lists and maps count as absent, as in Kubernetes' semantic comparison.
    """
    if obj is None:
        return None
    if name == "PodSpec":
        context = dict(obj.get("securityContext") or {})
        context.update((member, obj[member]) for member in _ON_SPEC if member in obj)
        obj = {**obj, "securityContext": context}
    printed: Object = {}
    for go, member, code in _members(name):
        if code != "o":
            printed[go] = _printed(obj.get(member), code, compared=compared)
        elif value := (obj.get("metadata") or {}).get(member):
            printed[go] = _metadata_value(member, value)
    return printed


def printed_metadata(meta: Mapping[str, Any]) -> Object:
    """Return the metadata of a template as it is printed."""
    return {
        member: _metadata_value(member, meta[member])
        for member in _METADATA
        if meta.get(member) or (member == "deletionGracePeriodSeconds" and meta.get(member) is not None)
    }


def _metadata_value(member: str, value: Any) -> Any:
    """Return the value of a member of metadata as it is printed."""
    if member in ("labels", "annotations"):
        return dict(sorted(value.items()))
    names = _METADATA_ITEMS.get(member)
    return [{name: item[name] for name in names if name in item} for item in value] if names else value


def _printed(value: Any, code: str, *, compared: bool) -> Any:
    zero = _ZEROS.get(code, _ZEROS)
    if zero is _ZEROS:
        return _below(value, code, compared=compared)
    if value is None or (compared and code in "lm" and not value):
        return zero
    if code == "m":
        return dict(sorted(value.items()))
    return selector(value) if code == "s" else value


def _below(value: Any, code: str, *, compared: bool) -> Any:
    if code.startswith("[]"):
        if value is None or (compared and not value):
            return None
        return [record(each, code[2:], compared=compared) for each in value]
    if code.startswith("*"):
        return record(value, code[1:], compared=compared)
    return record(value or {}, code, compared=compared)


def selector(given: Mapping[str, Any] | None) -> Object | None:
    """Return a label selector as it is printed, with sorted labels."""
    if given is None:
        return None
    printed: Object = {}
    if given.get("matchLabels"):
        printed["matchLabels"] = dict(sorted(given["matchLabels"].items()))
    if given.get("matchExpressions"):
        members = ("key", "operator", "values")
        printed["matchExpressions"] = [
            {name: each.get(name, "") for name in members if each.get(name) or name != "values"}
            for each in given["matchExpressions"]
        ]
    return printed


def difference(old: Any, new: Any) -> str:
    """Return the difference of two printed records as a unified diff, as in messages about immutable fields.

    Example:

        @@ -1,3 +1,3 @@
         {
        - "Server": "a"
        + "Server": "b"
         }
    """
    lines = [[f"{line}\n" for line in _indented(each).split("\n")] for each in (old, new)]
    return unified(lines[0], lines[1])


def _indented(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=1, separators=(",", ": "))
    for character, escape in HTML_ESCAPES:
        text = text.replace(character, escape)
    return text


def shape(obj: Mapping[str, Any] | None, name: str) -> Object | None:
    """Return a record of a type of SHAPES as Kubernetes prints it.

    Example: ({"kind": "Role"}, "RoleRef") -> {"APIGroup": "", "Kind": "Role", "Name": ""}.
    """
    if obj is None:
        return None
    return {go: _member(obj.get(member), code) for go, member, code in SHAPES[name]}


def _member(value: Any, code: Any) -> Any:
    if code == "{}":
        return None if value is None else dict(sorted(value.items()))
    if isinstance(code, str) and code != '""':
        name = code.lstrip("*[]")
        if code.startswith("[]"):
            return None if value is None else [shape(each, name) for each in value]
        return shape(value if value is not None or code.startswith("*") else {}, name)
    if value is None:
        return "" if code == '""' else code
    return value
