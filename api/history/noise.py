"""Noise: changes that systems make all the time, which hide those of people.

Clients leave them out unless they are asked for: kubectl's tables of revisions, the page, `between` and `incident`.
A program that reads revisions gets everything, unless it selects ``noise=hidden``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubechronicle.api.history.accesses import RESOURCE as ACCESSES
from kubechronicle.api.history.differences import CONSEQUENCES, is_within

NOISY_RESOURCES: Final = ("events", "events.events.k8s.io", "leases.coordination.k8s.io", ACCESSES)
"""Stored resources whose every change is noise: Events, Leases, which nodes and servers renew, and AccessRecords, which
have answers of their own."""

NOISY_FIELDS: Final = (
    "status.conditions.lastHeartbeatTime",
    "status.conditions.lastProbeTime",
    "metadata.annotations[control-plane.alpha.kubernetes.io/leader]",
    "metadata.resourceVersion",
    "metadata.managedFields",
    *sorted(CONSEQUENCES),
)
"""Fields that controllers renew. A change of nothing else is a heartbeat: of a node's status, or of a leader."""

NOISE: Final = "noise"
"""The selector of revisions, with one of its values."""
HIDDEN: Final = "hidden"
SHOWN: Final = "shown"


def is_heartbeat(changed: Iterable[str]) -> bool:
    """Tell whether an update changed nothing but noisy fields. ``changed``: its fields, as revisions list them."""
    return all(any(is_within(field, noisy) and len(field) >= len(noisy) for noisy in NOISY_FIELDS) for field in changed)
