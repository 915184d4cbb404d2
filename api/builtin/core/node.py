"""Node: a machine that runs pods.

Source: Kubernetes' ``registry/core/node``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, condition
from kubechronicle.api.builtin.common.checks import dual_stack, parse_cidr, repeated
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.network_values import cidr_warnings, legacy_cidr, staying_valid
from kubechronicle.api.builtin.common.printer import (
    AGE,
    NAME,
    Column,
    Printer,
    age_of,
    at,
    field_column,
    name_of,
    wide_field,
)
from kubechronicle.api.builtin.common.resource_amounts import amount
from kubechronicle.api.builtin.common.scheduling import taints
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, go_quote, internal, invalid_value
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------


def default_node_status(obj: Object) -> None:
    """Make all capacity allocatable if a node reports no allocatable resources."""
    if obj.get("allocatable") is None and obj.get("capacity"):
        obj["allocatable"] = dict(obj["capacity"])


def default_node_spec(obj: Object) -> None:
    """Make podCIDR the first of podCIDRs. If they disagree, podCIDR counts: the client knows only the older field."""
    alone, several = obj.get("podCIDR"), obj.get("podCIDRs")
    if alone and (not several or several[0] != alone):
        obj["podCIDRs"] = [alone]
    elif several and not alone:
        obj["podCIDR"] = several[0]


# -- preparation ------------------------------------------------------------------------------------------------------


def prepare_new_node(new: Object) -> None:
    """Drop the fields of DynamicKubeletConfig, which was removed."""
    (new.get("spec") or {}).pop("configSource", None)
    (new.get("status") or {}).pop("config", None)


def prepare_node_update(new: Object, old: Object) -> None:
    """Drop the source of the kubelet's configuration, unless the old node has one."""
    if (old.get("spec") or {}).get("configSource") is None:
        (new.get("spec") or {}).pop("configSource", None)


def prepare_node_status(new: Object, old: Object) -> None:
    """Drop the status of the kubelet's configuration, unless the old node has one."""
    if (old.get("status") or {}).get("config") is None:
        (new.get("status") or {}).pop("config", None)


# -- validation -------------------------------------------------------------------------------------------------------

_FEATURE: Final = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*\Z").match
FEATURE_NAME: Final = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or "
    "MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)


def _node_amounts(status: Object) -> list[Cause]:
    causes: list[Cause] = []
    for part in ("capacity", "allocatable"):
        for name, value in (status.get(part) or {}).items():
            causes += amount(name, value, f"status.{part}.{name}")
    return causes


def validate_node(obj: Object, *, strict: bool = True) -> list[Cause]:
    """Check the taints, capacities and address ranges of a node."""
    spec = obj["spec"]
    status = obj.get("status") or {}
    causes = taints(spec["taints"], "metadata.taints") if spec.get("taints") else []
    causes += _node_amounts(status)
    swap = ((status.get("nodeInfo") or {}).get("swap") or {}).get("capacity")
    if swap is not None and swap <= 0:
        causes.append(invalid_value("metadata.nodeSwapStatus.capacity", swap, "must be greater than zero"))
    causes += _declared_features(status)
    ranges = spec.get("podCIDRs") or []
    for index, value in enumerate(ranges):
        causes += legacy_cidr(value, f"spec.podCIDRs[{index}]", staying_valid((), strict=strict))
    if len(ranges) > 1:
        parsed = [each for each in map(parse_cidr, ranges) if each is not None]
        wrong = next((index for index, value in enumerate(ranges) if parse_cidr(value) is None), None)
        if wrong is not None:
            problem = f"invalid CIDR[{wrong}]: <nil> (invalid CIDR address: {ranges[wrong]})"
            text = f"invalid PodCIDRs. failed to check with dual stack with error:{problem}"
            causes.append(internal("spec.podCIDRs", text))
        if wrong is not None or not dual_stack(parsed) or len(ranges) > 2:
            detail = "may specify no more than one CIDR for each IP family"
            causes.append(invalid_value("spec.podCIDRs", ranges, detail))
    return causes


def _declared_features(status: Object) -> list[Cause]:
    """Check the names of features, and that they are sorted and differ."""
    causes: list[Cause] = []
    before: str | None = None
    for index, name in enumerate(status.get("declaredFeatures") or ()):
        field = f"status.declaredFeatures[{index}]"
        if before is not None and name == before:
            causes.append(duplicate(field, name))
        elif before is not None and name < before:
            causes.append(invalid_value(field, name, "list must be sorted alphabetically"))
        before = name
        if len(name.encode()) > names.SUBDOMAIN_MAX:
            problem = f"must be no more than {names.SUBDOMAIN_MAX} characters"
        elif not _FEATURE(name):
            problem = FEATURE_NAME
        else:
            continue
        causes.append(invalid_value(field, name, f"invalid feature name {go_quote(name)}: {problem}"))
    return causes


def validate_node_change(new: Object, old: Object) -> list[Cause]:
    """Return the causes that depend on the old node: address ranges and provider id are set once."""
    spec, held, status = new["spec"], old["spec"], new.get("status") or {}
    causes = _node_amounts(status) + _declared_features(status)
    addresses = status.get("addresses") or []
    for index, again in enumerate(repeated(tuple(sorted(address.items())) for address in addresses)):
        if again:
            causes.append(duplicate(f"status.addresses[{index}]", record(addresses[index], "NodeAddress")))
    refused = 'node updates may not change {} except from "" to valid'
    before, after = held.get("podCIDRs") or [], spec.get("podCIDRs") or []
    changed = 1 if len(before) != len(after) else sum(one != other for one, other in zip(before, after, strict=True))
    if before:
        causes += [forbidden("spec.podCIDRs", refused.format("podCIDR"))] * changed
    if held.get("providerID") and spec.get("providerID") != held["providerID"]:
        verb = "modified" if spec.get("providerID") else "cleared"
        causes.append(invalid_value("spec.providerID", None, f"field cannot be {verb} once set"))
    if spec.get("taints"):
        causes += taints(spec["taints"], "metadata.taints")
    if spec.get("externalID", "") != held.get("externalID", ""):
        causes.append(forbidden("spec.externalID", "may not be updated"))
    return causes


# -- warnings ---------------------------------------------------------------------------------------------------------


def node_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about removed fields, and about address ranges not in canonical form."""
    spec = new.get("spec")
    if not spec:
        return []
    warnings: list[str] = []
    if spec.get("configSource") is not None:
        warnings.append("spec.configSource: the feature is removed")
    if spec.get("externalID"):
        warnings.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
    for index, block in enumerate(spec.get("podCIDRs") or ()):
        warnings += cidr_warnings(block, f"spec.podCIDRs[{index}]")
    return warnings


# -- table columns ----------------------------------------------------------------------------------------------------

_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_ROLE_LABEL: Final = "kubernetes.io/role"


def _node_status(obj: ReadOnlyObject) -> str:
    ready = condition(at(obj, "status", "conditions"), "Ready")
    words = ["Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"]
    if at(obj, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(labels: Mapping[str, str]) -> str:
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get(_ROLE_LABEL, ""))
    return ",".join(sorted(roles - {""})) or "<none>"


def _node_address(obj: ReadOnlyObject, kind: str) -> str:
    addresses = at(obj, "status", "addresses", default=())
    return next((address.get("address", "") for address in addresses if address.get("type") == kind), "<none>")


def _kernel(info: ReadOnlyObject) -> str:
    version: str = info.get("kernelVersion") or "<unknown>"
    architecture = info.get("architecture")
    return f"{version} ({architecture})" if architecture else version


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    info = at(obj, "status", "nodeInfo", default={})
    return [
        name_of(obj),
        _node_status(obj),
        _node_roles(obj["metadata"].get("labels") or {}),
        age_of(obj, since),
        info.get("kubeletVersion") or "",
        _node_address(obj, "InternalIP"),
        _node_address(obj, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        _kernel(info),
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="nodes",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT, Check.METADATA_CHANGE, Check.CHANGE),
        status_on_create=True,
        prepare_create=prepare_new_node,
        prepare_update=prepare_node_update,
        validate=validate_node,
        validate_update=validate_node_change,
        warnings=node_warnings,
        subresources=MappingProxyType(
            {"status": status_update("spec", prepare=prepare_node_status, validate_update=validate_node_change)}
        ),
    ),
    gated_fields={
        "": (
            GatedField(gate="SupplementalGroupsPolicy", fields=("status.features",)),
            GatedField(gate="NodeDeclaredFeatures", fields=("status.declaredFeatures",)),
            GatedField(gate="InPlacePodVerticalScalingSchedulerPreemption", fields=("spec.podPreemptionPolicy",)),
        ),
        "status": (
            GatedField(gate="KubeletInUserNamespace", since=37, fields=("status.nodeInfo.runningInUserNamespace",)),
        ),
    },
    default_functions={
        "core.v1.NodeSpec": default_node_spec,
        "core.v1.NodeStatus": default_node_status,
    },
    resource_lists={"core.v1.NodeStatus": ("allocatable", "capacity")},
    printer=Printer(
        (
            NAME,
            Column("Status", text="The status of the node"),
            Column("Roles", text="The roles of the node"),
            AGE,
            field_column("Version", "core.v1.NodeSystemInfo.kubeletVersion"),
            wide_field("Internal-IP", "core.v1.NodeStatus.addresses"),
            wide_field("External-IP", "core.v1.NodeStatus.addresses"),
            wide_field("OS-Image", "core.v1.NodeSystemInfo.osImage"),
            wide_field("Kernel-Version", "core.v1.NodeSystemInfo.kernelVersion"),
            wide_field("Container-Runtime", "core.v1.NodeSystemInfo.containerRuntimeVersion"),
        ),
        _cells,
    ),
)
