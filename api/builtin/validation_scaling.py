"""Validation of HorizontalPodAutoscalers and PodDisruptionBudgets, in the form of validation.py."""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api import names, quantity
from kubechronicle.api.builtin.checks import label_selector, not_negative
from kubechronicle.api.builtin.validation_apps import at_most_whole, int_or_percent
from kubechronicle.api.field_errors import Cause, forbidden, invalid_value, not_supported, required

Object = dict[str, Any]

SOURCES: Final = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
MAX_PERIOD: Final = 1800
MAX_WINDOW: Final = 3600


def autoscaler(obj: Object) -> list[Cause]:
    """Bounds, target, metrics and behavior of an autoscaler (in version v2)."""
    spec = obj["spec"]
    causes: list[Cause] = []
    low, high = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    if low < 1:
        causes.append(invalid_value("spec.minReplicas", low, "must be greater than or equal to 1"))
    if high < 1:
        causes.append(required("spec.maxReplicas", "must be set and greater than 0"))
    if high < low:
        causes.append(invalid_value("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
    causes += _target_reference(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef")
    metrics = spec.get("metrics") or ()
    for index, metric in enumerate(metrics):
        causes += _metric(metric, f"spec.metrics[{index}]")
    if low == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        causes.append(forbidden("spec.metrics", detail))
    behavior = spec.get("behavior") or {}
    for name in ("scaleUp", "scaleDown"):
        if behavior.get(name) is not None:
            causes += _rules(behavior[name], f"spec.behavior.{name}")
    return causes


def _target_reference(reference: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for name in ("kind", "name"):
        value = reference.get(name, "")
        if not value:
            causes.append(required(f"{field}.{name}"))
        else:
            causes += [invalid_value(f"{field}.{name}", value, problem) for problem in names.path_segment(value)]
    api_version = reference.get("apiVersion", "")
    if "/" not in api_version and api_version != "v1":
        detail = "apiVersion must specify API group"
        causes.append(invalid_value(f"{field}.apiVersion", api_version, detail))
    return causes


def _metric(metric: Object, field: str) -> list[Cause]:
    kind = metric.get("type", "")
    if not kind:
        return [required(f"{field}.type", "must specify a metric source type")]
    if kind not in SOURCES:
        unsupported = not_supported(f"{field}.type", kind, sorted(SOURCES))
        return [unsupported, unsupported]
    causes: list[Cause] = []
    given = [source for source in SOURCES.values() if metric.get(source) is not None]
    source = SOURCES[kind]
    for other in given:
        if other != source:
            detail = "must populate the given metric source only"
            causes.append(forbidden(f"{field}.{other}", detail))
    if source not in given:
        causes.append(required(f"{field}.{source}", "must populate information for the given metric source"))
        return causes
    return causes + _source(metric[source], source, f"{field}.{source}")


def _source(metric: Object, source: str, field: str) -> list[Cause]:
    causes: list[Cause] = []
    target = metric.get("target") or {}
    if source in ("resource", "containerResource"):
        if not metric.get("name"):
            causes.append(required(f"{field}.name", "must specify a resource name"))
        if source == "containerResource" and not metric.get("container"):
            causes.append(required(f"{field}.container", "must specify a container name"))
    else:
        name = (metric.get("metric") or {}).get("name", "")
        if not name:
            causes.append(required(f"{field}.metric.name", "must specify a metric name"))
        else:
            causes += [invalid_value(f"{field}.metric.name", name, problem) for problem in names.path_segment(name)]
    if source == "object":
        causes += _target_reference(metric.get("describedObject") or {}, f"{field}.describedObject")
    return causes + _target(target, source, f"{field}.target")


def _target(target: Object, source: str, field: str) -> list[Cause]:
    causes: list[Cause] = []
    kind = target.get("type", "")
    if not kind:
        causes.append(required(f"{field}.type", "must specify a metric target type"))
    elif kind not in ("Utilization", "Value", "AverageValue"):
        causes.append(invalid_value(f"{field}.type", kind, "must be either Utilization, Value, or AverageValue"))
    for name in ("value", "averageValue"):
        if target.get(name) is not None and quantity.value_of(target[name]) <= 0:
            causes.append(invalid_value(f"{field}.{name}", target[name], "must be positive"))
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        causes.append(invalid_value(f"{field}.averageUtilization", utilization, "must be greater than 0"))
    if source in ("resource", "containerResource"):
        if utilization is None and target.get("averageValue") is None:
            detail = "must set either a target raw value or a target utilization"
            causes.append(required(f"{field}.averageUtilization", detail))
    elif source == "pods":
        if target.get("averageValue") is None:
            causes.append(required(f"{field}.averageValue", "must specify a positive target averageValue"))
    elif target.get("value") is None and target.get("averageValue") is None:
        detail = "must set either a target value or averageValue"
        causes.append(required(f"{field}.averageValue", detail))
    return causes


def _rules(rules: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        detail = "must be greater than or equal to zero"
        causes.append(invalid_value(f"{field}.stabilizationWindowSeconds", window, detail))
    if window is not None and window > MAX_WINDOW:
        detail = f"must be less than or equal to {MAX_WINDOW}"
        causes.append(invalid_value(f"{field}.stabilizationWindowSeconds", window, detail))
    select = rules.get("selectPolicy")
    if select is not None and select not in ("Max", "Min", "Disabled"):
        causes.append(not_supported(f"{field}.selectPolicy", select, ("Disabled", "Max", "Min")))
    if not rules.get("policies"):
        causes.append(required(f"{field}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(rules.get("policies") or ()):
        path = f"{field}.policies[{index}]"
        kind, value, period = policy.get("type", ""), policy.get("value", 0), policy.get("periodSeconds", 0)
        if kind not in ("Pods", "Percent"):
            causes.append(not_supported(f"{path}.type", kind, ("Percent", "Pods")))
        if value <= 0:
            causes.append(invalid_value(f"{path}.value", value, "must be greater than zero"))
        if period <= 0:
            causes.append(invalid_value(f"{path}.periodSeconds", period, "must be greater than zero"))
        if period > MAX_PERIOD:
            detail = f"must be less than or equal to {MAX_PERIOD}"
            causes.append(invalid_value(f"{path}.periodSeconds", period, detail))
    return causes


def disruption_budget(obj: Object) -> list[Cause]:
    """Of the two bounds one at most is set."""
    spec = obj["spec"]
    causes: list[Cause] = []
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    if low is not None and high is not None:
        shown = {
            "MinAvailable": low,
            "Selector": spec.get("selector"),
            "MaxUnavailable": high,
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        causes.append(invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for name, value in (("minAvailable", low), ("maxUnavailable", high)):
        if value is not None:
            causes += int_or_percent(value, f"spec.{name}") + at_most_whole(value, f"spec.{name}")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("IfHealthyBudget", "AlwaysAllow"):
        allowed = ("IfHealthyBudget", "AlwaysAllow")
        causes.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, allowed))
    return causes + label_selector(spec.get("selector"), "spec.selector")


def disruption_budget_status(new: Object, old: Object) -> list[Cause]:
    """Counts are not negative."""
    members = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    return not_negative(new.get("status") or {}, "status", *members)
