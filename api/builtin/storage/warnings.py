"""Warnings about kinds of storage.k8s.io: old node labels, and tokens among the attributes of volumes."""

from __future__ import annotations

from typing import Final

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


_TOKENS_IN_SECRETS: Final = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
    "logging of tokens in volume attributes"
)


def csi_driver_warnings(new: Object, old: Object | None) -> list[str]:
    """Return a warning if a driver newly requests tokens and doesn't say where it gets them."""
    spec, held = new["spec"], (old or {}).get("spec") or {}
    requests = spec.get("tokenRequests")
    if not requests or requests == held.get("tokenRequests") or spec.get("serviceAccountTokenInSecrets") is not None:
        return []
    return [_TOKENS_IN_SECRETS]


def storage_capacity_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about old labels in the node topology."""
    topology, warnings = new.get("nodeTopology") or {}, list[str]()
    for index, expression in enumerate(topology.get("matchExpressions") or ()):
        warnings += old_label_warnings(expression.get("key", ""), f"nodeTopology.matchExpressions[{index}].key")
    for label in topology.get("matchLabels") or ():
        warnings += old_label_warnings(label, f"nodeTopology.matchLabels.{label}")
    return warnings
