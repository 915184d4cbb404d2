"""Validation of Deployments."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.checks import not_negative
from kubechronicle.api.builtin.common.int_or_percent import at_most_100_percent, int_or_percent, is_zero
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.podtemplate.workloads import (
    collisions,
    parts_of_replicas,
    selector_and_template,
    shown_rolling_update,
)
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.values.objects import Object


def _deployment_strategy(strategy: Object) -> list[Cause]:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    field = "spec.strategy.rollingUpdate"
    if kind == "Recreate":
        if rolling is None:
            return []
        return [forbidden(field, "may not be specified when strategy `type` is 'Recreate'")]
    if kind != "RollingUpdate":
        shown = {"Type": kind, "RollingUpdate": shown_rolling_update(rolling)}
        return [not_supported("spec.strategy", shown, ("Recreate", "RollingUpdate"))]
    if rolling is None:
        return [required("spec.strategy.rollingUpdate", "this should be defaulted and never be nil")]
    surge, unavailable = rolling.get("maxSurge", 0), rolling.get("maxUnavailable", 0)
    causes = int_or_percent(unavailable, f"{field}.maxUnavailable") + int_or_percent(surge, f"{field}.maxSurge")
    if is_zero(unavailable) and is_zero(surge):
        causes.append(invalid_value(f"{field}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return causes + at_most_100_percent(unavailable, f"{field}.maxUnavailable")


def deployment(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check the selector, template, strategy and counts of a Deployment."""
    spec = obj["spec"]
    causes = not_negative(spec, "spec", "replicas") + selector_and_template(spec, "deployment", options)
    causes += _deployment_strategy(spec.get("strategy") or {})
    causes += not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        detail = "must be greater than minReadySeconds"
        causes.append(invalid_value("spec.progressDeadlineSeconds", deadline, detail))
    return causes


_COUNTS: Final = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


def deployment_status(new: Object, old: Object) -> list[Cause]:
    """Check that counts are not negative and do not exceed the number of replicas."""
    status = new.get("status") or {}
    causes = not_negative(status, "status", "observedGeneration", *_COUNTS, "collisionCount")
    if status.get("terminatingReplicas") is not None:
        causes += not_negative(status, "status", "terminatingReplicas")
    return causes + parts_of_replicas(status, "updatedReplicas") + collisions(status, old)
