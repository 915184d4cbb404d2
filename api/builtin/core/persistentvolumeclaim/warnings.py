"""Warnings about PersistentVolumeClaims, and about the claim templates of StatefulSets."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.resource_amounts import fractional_warnings
from kubechronicle.api.builtin.core.persistentvolumeclaim.validation import BETA_STORAGE_CLASS
from kubechronicle.api.values.objects import Object


def storage_warnings(spec: Object, field: str) -> list[str]:
    """Return warnings about amounts of storage that are not whole."""
    resources = spec.get("resources") or {}
    warnings = fractional_warnings(resources.get("requests"), f"{field}.resources.requests", "storage")
    return warnings + fractional_warnings(resources.get("limits"), f"{field}.resources.limits", "storage")


OLD_CLASS: Final = (
    f'metadata.annotations[{BETA_STORAGE_CLASS}]: deprecated since v1.8; use "storageClassName" attribute instead'
)


def claim_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about the class annotation and about fractional amounts."""
    warnings = [OLD_CLASS] if BETA_STORAGE_CLASS in (new["metadata"].get("annotations") or ()) else []
    return warnings + storage_warnings(new.get("spec") or {}, "spec")
