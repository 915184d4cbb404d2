"""Validation of StatefulSets."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.checks import not_negative
from kubechronicle.api.builtin.common.int_or_percent import at_most_100_percent, int_or_percent, is_zero
from kubechronicle.api.builtin.core.pod.validation import specific_annotations
from kubechronicle.api.builtin.core.podtemplate.workloads import collisions, long_running, workload_selector
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported
from kubechronicle.api.meta.metadata import validate_annotations, validate_labels
from kubechronicle.api.values.objects import Object


def stateful_set_status(new: Object, old: Object) -> list[Cause]:
    """Check that counts are not negative and do not exceed the number of replicas."""
    status = new.get("status") or {}
    parts = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
    causes = not_negative(status, "status", "replicas", *parts, "observedGeneration", "collisionCount")
    for name in parts:
        if status.get(name, 0) > status.get("replicas", 0):
            causes.append(invalid_value(f"status.{name}", status[name], "cannot be greater than status.replicas"))
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        detail = "cannot be greater than status.readyReplicas"
        causes.append(invalid_value("status.availableReplicas", available, detail))
    return causes + collisions(status, old)


def stateful_set(obj: Object) -> list[Cause]:
    """Check the policies, selector and template of a StatefulSet."""
    spec = obj["spec"]
    causes: list[Cause] = []
    policy = spec.get("podManagementPolicy", "")
    if policy not in ("OrderedReady", "Parallel"):
        causes.append(invalid_value("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    strategy = spec.get("updateStrategy") or {}
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "OnDelete" and rolling is not None:
        shown = {"Partition": rolling.get("partition", 0), "MaxUnavailable": rolling.get("maxUnavailable")}
        detail = "only allowed for updateStrategy 'RollingUpdate'"
        causes.append(invalid_value("spec.updateStrategy.rollingUpdate", shown, detail))
    elif kind == "RollingUpdate" and rolling is not None:
        causes += _stateful_rolling(rolling, "spec.updateStrategy.rollingUpdate")
    elif kind not in ("OnDelete", "RollingUpdate"):
        shown = {"Type": kind, "RollingUpdate": rolling}
        causes.append(invalid_value("spec.updateStrategy", shown, "must be 'RollingUpdate' or 'OnDelete'"))
    causes += _claim_retention(spec.get("persistentVolumeClaimRetentionPolicy") or {})
    causes += not_negative(spec, "spec", "replicas", "minReadySeconds")
    causes += not_negative(spec.get("ordinals") or {}, "spec.ordinals", "start")
    causes += workload_selector(spec, "statefulset")
    template = spec.get("template") or {}
    causes += _template_metadata(template, "spec.template")
    return causes + long_running(template, "spec.template", "StatefulSet")


def _stateful_rolling(rolling: Object, field: str) -> list[Cause]:
    causes = not_negative(rolling, field, "partition")
    most = rolling.get("maxUnavailable")
    if most is not None:
        causes += int_or_percent(most, f"{field}.maxUnavailable")
        if is_zero(most):
            causes.append(invalid_value(f"{field}.maxUnavailable", most, "cannot be 0"))
        causes += at_most_100_percent(most, f"{field}.maxUnavailable")
    return causes


def _claim_retention(policy: Object) -> list[Cause]:
    choices, field = ("Retain", "Delete"), "spec.persistentVolumeClaimRetentionPolicy"
    return [
        not_supported(f"{field}.{name}", policy[name], choices)
        for name in ("whenDeleted", "whenScaled")
        if name in policy and policy[name] not in choices
    ]


def _template_metadata(template: Object, field: str) -> list[Cause]:
    """Check labels and annotations only: a StatefulSet makes the volumes for each pod, so its template alone is
    incomplete."""
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    causes = validate_labels(metadata.get("labels") or {}, f"{field}.labels")
    if metadata.get("annotations"):
        causes += validate_annotations(metadata["annotations"], f"{field}.annotations")
        causes += specific_annotations(metadata["annotations"], spec, f"{field}.annotations")
    return causes


STATEFUL_SET_UPDATE: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_STATEFUL_SET_CHANGEABLE: Final = frozenset(
    (
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    )
)


def stateful_set_update(new: Object, old: Object) -> list[Cause]:
    """Reject changes of any spec field that is not listed as changeable."""
    frozen = [
        {name: value for name, value in each["spec"].items() if name not in _STATEFUL_SET_CHANGEABLE}
        for each in (new, old)
    ]
    return [] if frozen[0] == frozen[1] else [forbidden("spec", STATEFUL_SET_UPDATE)]
