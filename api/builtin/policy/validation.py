"""Validation of PodDisruptionBudgets."""

from __future__ import annotations

from kubechronicle.api.builtin.common.checks import label_selector, not_negative
from kubechronicle.api.builtin.common.conditions import conditions
from kubechronicle.api.builtin.common.go_shapes import selector
from kubechronicle.api.builtin.common.int_or_percent import at_most_100_percent, int_or_percent
from kubechronicle.api.errors.field_errors import Cause, invalid_value, not_supported
from kubechronicle.api.values.objects import Object


def disruption_budget(obj: Object) -> list[Cause]:
    """Check the bounds, eviction policy and selector of a budget; at most one bound can be set."""
    spec = obj["spec"]
    causes: list[Cause] = []
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    if low is not None and high is not None:
        shown = {
            "MinAvailable": low,
            "Selector": selector(spec.get("selector")),
            "MaxUnavailable": high,
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        causes.append(invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for name, value in (("minAvailable", low), ("maxUnavailable", high)):
        if value is not None:
            causes += int_or_percent(value, f"spec.{name}") + at_most_100_percent(value, f"spec.{name}")
    policy = spec.get("unhealthyPodEvictionPolicy")
    causes += label_selector(spec.get("selector"), "spec.selector")
    allowed = ("AlwaysAllow", "IfHealthyBudget")
    if policy is not None and policy not in allowed:
        causes.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, allowed))
    return causes


def disruption_budget_status(new: Object, old: Object) -> list[Cause]:
    """Check the conditions, and that counts are not negative."""
    status = new.get("status") or {}
    members = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    return conditions(status.get("conditions") or (), "status.conditions") + not_negative(status, "status", *members)
