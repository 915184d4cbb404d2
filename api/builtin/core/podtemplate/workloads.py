"""Validation shared by the workload kinds: selectors, long-running pods, and counts in the status.

Source: Kubernetes' ``apis/apps/validation``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.checks import immutable, label_selector, not_negative, sorted_labels
from kubechronicle.api.builtin.common.go_shapes import selector
from kubechronicle.api.builtin.core.pod.options import PodOptions
from kubechronicle.api.builtin.core.podtemplate.validation import pod_template
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.values.objects import Object


def selector_matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches these labels."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for requirement in selector.get("matchExpressions") or ():
        key, operator, values = requirement.get("key"), requirement.get("operator"), requirement.get("values") or ()
        present = key in labels
        if operator == "In" and not (present and labels[key] in values):
            return False
        if operator == "NotIn" and present and labels[key] in values:
            return False
        if operator == "Exists" and not present:
            return False
        if operator == "DoesNotExist" and present:
            return False
    return True


def long_running(template: Object, field: str, kind: str = "ReplicaSet") -> list[Cause]:
    """Require pods that run until they are deleted: restart policy Always and no deadline."""
    spec = template.get("spec") or {}
    causes: list[Cause] = []
    policy = spec.get("restartPolicy", "")
    if policy != "Always":
        causes.append(not_supported(f"{field}.spec.restartPolicy", policy, ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        causes.append(forbidden(f"{field}.spec.activeDeadlineSeconds", detail))
    return causes


def selector_and_template(spec: Object, workload: str, options: PodOptions) -> list[Cause]:
    """Check the selector and the pod template of a workload that is like a ReplicaSet.

    The template is checked only if the selector can be parsed.
    """
    template = spec.get("template") or {}
    causes, parses = workload_selector(spec, workload)
    if not parses:
        return [*causes, invalid_value("spec.selector", selector(spec.get("selector")), "invalid label selector")]
    causes += template_labels(spec) + pod_template(template, "spec.template", options)
    return causes + long_running(template, "spec.template")


def workload_selector(spec: Object, workload: str) -> tuple[list[Cause], bool]:
    """Check that the selector is present and not empty. Return the causes, and whether it can be parsed."""
    given = spec.get("selector")
    if given is None:
        return [required("spec.selector")], True
    causes = label_selector(given, "spec.selector")
    parses = not causes
    return causes + not_empty(given, workload), parses


def not_empty(given: Object, workload: str) -> list[Cause]:
    """Reject a selector that selects everything."""
    if given.get("matchLabels") or given.get("matchExpressions"):
        return []
    return [invalid_value("spec.selector", {}, f"empty selector is invalid for {workload}")]


def template_labels(spec: Object) -> list[Cause]:
    """Check that the selector matches the template's labels; no selector matches nothing."""
    given = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if given is not None and selector_matches(given, labels or {}):
        return []
    return [invalid_value("spec.template.metadata.labels", sorted_labels(labels), MISMATCH)]


MISMATCH: Final = "`selector` does not match template `labels`"


def immutable_selector(new: Object | None, old: Object | None) -> list[Cause]:
    """Reject a changed selector."""
    return [] if new == old else immutable("spec.selector", selector(new), selector(old))


def selector_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed selector of a workload."""
    return immutable_selector(new["spec"].get("selector"), old["spec"].get("selector"))


def shown_rolling_update(rolling: Object | None) -> Object | None:
    """Return the bounds of a rolling update as Kubernetes prints them."""
    if rolling is None:
        return None
    return {"MaxUnavailable": rolling.get("maxUnavailable", 0), "MaxSurge": rolling.get("maxSurge", 0)}


def collisions(status: Object, old: Object) -> list[Cause]:
    """Reject a collision count that decreases."""
    held, count = (old.get("status") or {}).get("collisionCount"), status.get("collisionCount")
    if held is None or (count is not None and count >= held):
        return []
    return [invalid_value("status.collisionCount", count or 0, "cannot be decremented")]


def parts_of_replicas(status: Object, *parts: str) -> list[Cause]:
    """Check that partial counts do not exceed the number of replicas."""
    causes: list[Cause] = []
    whole = status.get("replicas", 0)
    for name in (*parts, "readyReplicas", "availableReplicas"):
        if status.get(name, 0) > whole:
            causes.append(
                invalid_value(f"status.{name}", status.get(name, 0), "cannot be greater than status.replicas")
            )
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        causes.append(invalid_value("status.availableReplicas", available, "cannot be greater than readyReplicas"))
    return causes


_COUNTS: Final = (
    "replicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
    "terminatingReplicas",
)


def replica_set_status(new: Object, old: Object) -> list[Cause]:
    """Check that counts are not negative and do not exceed the number of replicas."""
    status = new.get("status") or {}
    return not_negative(status, "status", *_COUNTS) + parts_of_replicas(status, "fullyLabeledReplicas")


def fill_replicas(empty: Object) -> None:
    """Set the number of replicas of an object without contents, which is no pointer in Kubernetes' internal type."""
    empty["spec"] = {"replicas": 0, **empty["spec"]}
