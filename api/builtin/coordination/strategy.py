"""Strategy of Lease. | Source: ``registry/coordination/lease/strategy.go``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.coordination import validation
from kubechronicle.api.strategy.strategy import Check, Strategy

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "leases.coordination.k8s.io": Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        status=False,
        kube_finalizers=False,
        create_on_update=True,
        unconditional_update=False,
        validate=validation.lease,
    ),
}
