"""The strategy of PodDisruptionBudget.

Source: ``registry/policy/poddisruptionbudget/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.policy import validation
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "poddisruptionbudgets.policy": Strategy(
        update_checks=(Check.OBJECT, Check.CHANGE),
        names="segment",
        checks_metadata=False,
        kube_finalizers=False,
        generation=True,
        unconditional_update=False,
        validate=validation.disruption_budget,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec",
                    validate_update=validation.disruption_budget_status,
                    lenient_in=("policy/v1beta1",),
                    checks=(Check.CHANGE,),
                )
            }
        ),
    ),
}
