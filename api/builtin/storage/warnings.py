"""Warnings about StorageClasses and CSIStorageCapacities: labels of nodes that have got other names."""

from __future__ import annotations

from typing import Any

from kubechronicle.api.builtin.common.node_labels import old_label_warnings

Object = dict[str, Any]


def storage_class_warnings(new: Object, old: Object | None) -> list[str]:
    """Labels in topologies."""
    return [
        warning
        for index, term in enumerate(new.get("allowedTopologies") or ())
        for position, expression in enumerate(term.get("matchLabelExpressions") or ())
        for warning in old_label_warnings(
            expression.get("key", ""), f"allowedTopologies[{index}].matchLabelExpressions[{position}].key"
        )
    ]


def storage_capacity_warnings(new: Object, old: Object | None) -> list[str]:
    """Labels in the topology."""
    topology, warnings = new.get("nodeTopology") or {}, list[str]()
    for index, expression in enumerate(topology.get("matchExpressions") or ()):
        warnings += old_label_warnings(expression.get("key", ""), f"nodeTopology.matchExpressions[{index}].key")
    for label in topology.get("matchLabels") or ():
        warnings += old_label_warnings(label, f"nodeTopology.matchLabels.{label}")
    return warnings
