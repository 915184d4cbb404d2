"""Defaults of PodDisruptionBudgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.policy.conversions import drop_marker_key

Object = dict[str, Any]


def disruption_budget(obj: Object) -> None:
    """The key that policy/v1beta1 says "all pods" with means nothing in a selector that says something else. (This is
    part of the decoding of policy/v1, not of its defaults, but it comes at the same time.)"""
    drop_marker_key(obj["spec"])


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "policy.v1.PodDisruptionBudget": disruption_budget,
}
