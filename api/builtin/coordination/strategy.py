"""Strategy of Lease: fields of disabled features are dropped unless the stored object has them.

Source: ``registry/coordination/lease/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.coordination import validation
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object

_LEADER_ELECTION: Final = ("strategy", "preferredHolder")
"""Fields of CoordinatedLeaderElection, which is disabled."""


def prepare_new_lease(new: Object) -> None:
    """Drop the fields of disabled features."""
    prepare_lease_update(new, {})


def prepare_lease_update(new: Object, old: Object) -> None:
    """Drop the fields of disabled features, unless the old lease has them."""
    spec, held = new.get("spec") or {}, old.get("spec") or {}
    for name in _LEADER_ELECTION:
        if name not in held:
            spec.pop(name, None)


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "leases.coordination.k8s.io": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        status=False,
        kube_finalizers=False,
        create_on_update=True,
        unconditional_update=False,
        prepare_create=prepare_new_lease,
        prepare_update=prepare_lease_update,
        validate=validation.lease,
    ),
}
