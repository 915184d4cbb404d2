"""The parts of a Secret that hold its values. Where people read history, they are masked (revisions.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.values.objects import Object

RESOURCE: Final = "secrets"
FIELDS: Final = ("data", "stringData")
# The annotation of kubectl apply has a copy of the whole object, with the data of a Secret.
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def without_values(secret: Mapping[str, Any]) -> Object:
    """Return a Secret without its values, and without the annotation that has a copy of them."""
    found: Object = {name: value for name, value in secret.items() if name not in FIELDS}
    metadata = found.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and isinstance(annotations, dict) and LAST_APPLIED in annotations:
        left = {name: value for name, value in annotations.items() if name != LAST_APPLIED}
        found["metadata"] = {**metadata, "annotations": left}
    return found
