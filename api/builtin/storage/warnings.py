"""Warnings about StorageClasses and CSIStorageCapacities with old node labels."""

from __future__ import annotations

from kubechronicle.api.builtin.common.node_labels import old_label_warnings
from kubechronicle.api.values.objects import Object


def storage_class_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about old labels in the allowed topologies."""
    return [
        warning
        for index, term in enumerate(new.get("allowedTopologies") or ())
        for position, expression in enumerate(term.get("matchLabelExpressions") or ())
        for warning in old_label_warnings(
            expression.get("key", ""), f"allowedTopologies[{index}].matchLabelExpressions[{position}].key"
        )
    ]


def storage_capacity_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about old labels in the node topology."""
    topology, warnings = new.get("nodeTopology") or {}, list[str]()
    for index, expression in enumerate(topology.get("matchExpressions") or ()):
        warnings += old_label_warnings(expression.get("key", ""), f"nodeTopology.matchExpressions[{index}].key")
    for label in topology.get("matchLabels") or ():
        warnings += old_label_warnings(label, f"nodeTopology.matchLabels.{label}")
    return warnings
