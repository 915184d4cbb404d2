"""Warnings about RuntimeClasses."""

from __future__ import annotations

from kubechronicle.api.builtin.common.node_labels import old_label_warnings
from kubechronicle.api.values.objects import Object


def runtime_class_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about old labels in the node selector."""
    chosen = (new.get("scheduling") or {}).get("nodeSelector") or ()
    return [warning for label in chosen for warning in old_label_warnings(label, "scheduling.nodeSelector")]
