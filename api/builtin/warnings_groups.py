"""Warnings about kinds of storage and nodes: labels of nodes that have got other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.values.objects import Object

OLD_NODE_LABELS: Final[Mapping[str, str]] = {
    old: f'deprecated since {since}; use "{new}" instead'
    for old, since, new in (
        ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
        ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
        ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
        ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
        ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    )
}


def _told(label: str, field: str) -> list[str]:
    return [f"{field}: {OLD_NODE_LABELS[label]}"] if label in OLD_NODE_LABELS else []


def storage_class_warnings(new: Object, old: Object | None) -> list[str]:
    """Labels in topologies."""
    return [
        told
        for index, term in enumerate(new.get("allowedTopologies") or ())
        for position, expression in enumerate(term.get("matchLabelExpressions") or ())
        for told in _told(
            expression.get("key", ""), f"allowedTopologies[{index}].matchLabelExpressions[{position}].key"
        )
    ]


def storage_capacity_warnings(new: Object, old: Object | None) -> list[str]:
    """Labels in the topology."""
    topology, told = new.get("nodeTopology") or {}, list[str]()
    for index, expression in enumerate(topology.get("matchExpressions") or ()):
        told += _told(expression.get("key", ""), f"nodeTopology.matchExpressions[{index}].key")
    for label in topology.get("matchLabels") or ():
        told += _told(label, f"nodeTopology.matchLabels.{label}")
    return told


def runtime_class_warnings(new: Object, old: Object | None) -> list[str]:
    """Labels nodes are chosen by."""
    chosen = (new.get("scheduling") or {}).get("nodeSelector") or ()
    return [told for label in chosen for told in _told(label, "scheduling.nodeSelector")]
