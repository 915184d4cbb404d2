"""Validation of Nodes: taints, capacities and address ranges."""

from __future__ import annotations

import re
from typing import Final

from kubechronicle.api.builtin.common.checks import dual_stack, parse_cidr, repeated
from kubechronicle.api.builtin.common.go_shapes import shape
from kubechronicle.api.builtin.common.network_values import legacy_cidr
from kubechronicle.api.builtin.common.resource_amounts import amount
from kubechronicle.api.builtin.common.scheduling import taints
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, go_quote, internal, invalid_value
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

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


def node(obj: Object) -> list[Cause]:
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
        causes += legacy_cidr(value, f"spec.podCIDRs[{index}]")
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


def node_change(new: Object, old: Object) -> list[Cause]:
    """Return the causes that depend on the old node: address ranges and provider id are set once."""
    spec, held, status = new["spec"], old["spec"], new.get("status") or {}
    causes = _node_amounts(status) + _declared_features(status)
    addresses = status.get("addresses") or []
    for index, again in enumerate(repeated(tuple(sorted(address.items())) for address in addresses)):
        if again:
            causes.append(duplicate(f"status.addresses[{index}]", shape(addresses[index], "NodeAddress")))
    refused = 'node updates may not change {} except from "" to valid'
    before, after = held.get("podCIDRs") or [], spec.get("podCIDRs") or []
    changed = 1 if len(before) != len(after) else sum(one != other for one, other in zip(before, after, strict=True))
    if before:
        causes += [forbidden("spec.podCIDRs", refused.format("podCIDR"))] * changed
    if held.get("providerID") and spec.get("providerID") != held["providerID"]:
        causes.append(forbidden("spec.providerID", refused.format("providerID")))
    if spec.get("taints"):
        causes += taints(spec["taints"], "metadata.taints")
    if spec.get("externalID", "") != held.get("externalID", ""):
        causes.append(forbidden("spec.externalID", "may not be updated"))
    return causes
