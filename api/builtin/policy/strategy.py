"""The strategy of PodDisruptionBudget.

Source: ``registry/policy/poddisruptionbudget/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.policy import validation
from kubechronicle.api.strategy.strategy import Strategy, status_update

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "poddisruptionbudgets.policy": Strategy(
        names="segment",
        checks_metadata=False,
        checks_metadata_change=False,
        kube_finalizers=False,
        generation=True,
        unconditional_update=False,
        validates_whole_update=False,
        validate=validation.disruption_budget,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec",
                    validate_update=validation.disruption_budget_status,
                    lenient_in=("policy/v1beta1",),
                )
            }
        ),
    ),
}
