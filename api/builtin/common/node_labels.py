"""Warnings about node labels that have been renamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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


def old_label_warnings(label: str, field: str) -> list[str]:
    """Return a warning if a node label is deprecated in favour of another name."""
    return [f"{field}: {OLD_NODE_LABELS[label]}"] if label in OLD_NODE_LABELS else []
