"""Validation of DaemonSets."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.checks import label_selector, not_negative
from kubechronicle.api.builtin.common.int_or_percent import at_most_100_percent, int_or_percent, is_zero
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.podtemplate.validation import pod_template
from kubechronicle.api.builtin.core.podtemplate.workloads import (
    collisions,
    long_running,
    not_empty,
    selector_update,
    shown_rolling_update,
    template_labels,
)
from kubechronicle.api.errors.field_errors import Cause, invalid_value, not_supported, required
from kubechronicle.api.values.objects import Object

_SCHEDULED: Final = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "collisionCount",
)


def daemon_set_status(new: Object, old: Object) -> list[Cause]:
    """Check that counts are not negative and the collision count does not decrease."""
    status = new.get("status") or {}
    return not_negative(status, "status", *_SCHEDULED) + collisions(status, old)


def _selector(spec: Object) -> list[Cause]:
    given = spec.get("selector")
    causes = label_selector(given, "spec.selector")
    if not causes:
        causes += template_labels(spec)
    return causes if given is None else causes + not_empty(given, "daemonset")


def daemon_set(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check the selector, template and update strategy of a DaemonSet."""
    spec = obj["spec"]
    template = spec.get("template") or {}
    causes = _selector(spec) + pod_template(template, "spec.template", options)
    causes += long_running(template, "spec.template", "DaemonSet") + not_negative(spec, "spec", "minReadySeconds")
    strategy = spec.get("updateStrategy") or {}
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    field = "spec.updateStrategy.rollingUpdate"
    if kind == "RollingUpdate" and rolling is None:
        causes.append(required(field))
    elif kind == "RollingUpdate" and rolling is not None:
        unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        causes += int_or_percent(unavailable, f"{field}.maxUnavailable") + int_or_percent(surge, f"{field}.maxSurge")
        causes += at_most_100_percent(unavailable, f"{field}.maxUnavailable") + at_most_100_percent(
            surge, f"{field}.maxSurge"
        )
        if is_zero(unavailable) and is_zero(surge):
            causes.append(required(f"{field}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
        elif not is_zero(unavailable) and not is_zero(surge):
            causes.append(invalid_value(f"{field}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif kind != "OnDelete":
        shown = {"Type": kind, "RollingUpdate": shown_rolling_update(rolling)}
        causes.append(not_supported("spec.updateStrategy", shown, ("RollingUpdate", "OnDelete")))
    return causes + not_negative(spec, "spec", "revisionHistoryLimit")


def daemon_set_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed selector, and check a changed DaemonSet like a new one."""
    return selector_update(new, old) + daemon_set(new)
