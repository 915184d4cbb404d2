"""Defaults of PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kubechronicle.api.builtin.policy.conversions import drop_marker_key
from kubechronicle.api.values.objects import Object


def disruption_budget(obj: Object) -> None:
    """Remove the marker key from a selector with other requirements.

    Kubernetes does this when it decodes policy/v1, at the same point of a request.
    """
    drop_marker_key(obj["spec"])


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "policy.v1.PodDisruptionBudget": disruption_budget,
}
