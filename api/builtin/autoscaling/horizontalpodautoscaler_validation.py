"""Validation of HorizontalPodAutoscalers, in version v2."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.checks import NOT_NEGATIVE, dns_label, not_negative
from kubechronicle.api.builtin.common.resource_amounts import container_resource_name
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.values import names, quantity
from kubechronicle.api.values.objects import Object

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
    """Check a new autoscaler."""
    target = obj["spec"].get("scaleTargetRef") or {}
    problem = _api_version(target, needs_group=target.get("kind") != "ReplicationController")
    return _spec(obj["spec"], problem, old={})


def autoscaler_update(new: Object, old: Object) -> list[Cause]:
    """Check a changed autoscaler; the API version of its target only if the version or the kind has changed."""
    target, held = (each["spec"].get("scaleTargetRef") or {} for each in (new, old))
    same = all(target.get(name, "") == held.get(name, "") for name in ("apiVersion", "kind"))
    problem = "" if same else _api_version(target, needs_group=target.get("kind") != "ReplicationController")
    return _spec(new["spec"], problem, old=old["spec"])


def _spec(spec: Object, target_problem: str, *, old: Object) -> list[Cause]:
    """Check the bounds, target, metrics and behavior. ``target_problem`` is of the target's API version."""
    causes: list[Cause] = []
    low, high = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    if high < low:
        causes.append(invalid_value("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
    causes += _reference(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef", target_problem)
    metrics = spec.get("metrics") or ()
    lenient = any(_api_version(object_metric, needs_group=False) for object_metric in _described(old))
    for index, metric in enumerate(metrics):
        causes += _metric(metric, f"spec.metrics[{index}]", lenient=lenient)
    if low == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        causes.append(forbidden("spec.metrics", detail))
    behavior = spec.get("behavior") or {}
    for name in ("scaleUp", "scaleDown"):
        if behavior.get(name) is not None:
            causes += _rules(behavior[name], f"spec.behavior.{name}")
    return causes


def _described(spec: Object) -> list[Object]:
    """Return the references to the objects that metrics of type Object describe."""
    return [
        metric["object"].get("describedObject") or {}
        for metric in spec.get("metrics") or ()
        if metric.get("type") == "Object" and metric.get("object") is not None
    ]


def _reference(reference: Object, field: str, version_problem: str) -> list[Cause]:
    causes: list[Cause] = []
    for name in ("kind", "name"):
        value = reference.get(name, "")
        if not value:
            causes.append(required(f"{field}.{name}"))
        else:
            causes += [invalid_value(f"{field}.{name}", value, problem) for problem in names.path_segment(value)]
    if version_problem:
        causes.append(invalid_value(f"{field}.apiVersion", reference.get("apiVersion", ""), version_problem))
    return causes


def _api_version(reference: Object, *, needs_group: bool) -> str:
    """Return the problem of a reference's API version, "" if it has none."""
    api_version = reference.get("apiVersion", "")
    slashes = api_version.count("/")
    if slashes > 1:
        return f"unexpected GroupVersion string: {api_version}"
    group = api_version.partition("/")[0] if slashes else ""
    return "apiVersion must specify API group" if needs_group and not group else ""


_SOURCE_ORDER: Final = ("object", "external", "pods", "resource", "containerResource")
"""Metric sources in Kubernetes' order; only the first that is set is checked in detail."""


def _metric(metric: Object, field: str, *, lenient: bool) -> list[Cause]:
    kind = metric.get("type", "")
    causes: list[Cause] = []
    if not kind:
        causes.append(required(f"{field}.type", "must specify a metric source type"))
    unsupported = not_supported(f"{field}.type", kind, sorted(SOURCES))
    if kind not in SOURCES:
        causes.append(unsupported)
    given = [source for source in _SOURCE_ORDER if metric.get(source) is not None]
    if given:
        causes += _source(metric[given[0]], given[0], f"{field}.{given[0]}", lenient=lenient)
    source = SOURCES.get(kind)
    if source is None:
        causes.append(unsupported)
    elif source not in given:
        causes.append(required(f"{field}.{source}", "must populate information for the given metric source"))
    if len(given) != 1:
        detail = "must populate the given metric source only"
        causes += [forbidden(f"{field}.{other}", detail) for other in given if other != source]
    return causes


def _source(metric: Object, source: str, field: str, *, lenient: bool) -> list[Cause]:
    causes: list[Cause] = []
    target = metric.get("target") or {}
    if source in ("resource", "containerResource"):
        name, container = metric.get("name", ""), metric.get("container", "")
        if not name:
            causes.append(required(f"{field}.name", "must specify a resource name"))
        elif source == "containerResource":
            causes += container_resource_name(name, f"{field}.name")
        if source == "containerResource":
            path = f"{field}.container"
            causes += dns_label(container, path) if container else [required(path, "must specify a container")]
    else:
        if source == "object":
            described = metric.get("describedObject") or {}
            problem = "" if lenient else _api_version(described, needs_group=False)
            causes += _reference(described, f"{field}.describedObject", problem)
        name = (metric.get("metric") or {}).get("name", "")
        if not name:
            causes.append(required(f"{field}.metric.name", "must specify a metric name"))
        else:
            causes += [invalid_value(f"{field}.metric.name", name, problem) for problem in names.path_segment(name)]
    return causes + _target(target, source, f"{field}.target")


_TARGETS: Final = {
    "object": (("value", "averageValue"), "averageValue", "must set either a target value or averageValue"),
    "external": (
        ("value", "averageValue"),
        "averageValue",
        "must set either a target value for metric or a per-pod target",
    ),
    "pods": (("averageValue",), "averageValue", "must specify a positive target averageValue"),
    "resource": (
        ("averageUtilization", "averageValue"),
        "averageUtilization",
        "must set either a target raw value or a target utilization",
    ),
}
"""Source -> (fields of which at least one is required, field to report, message)."""

_NOT_BOTH: Final = {
    "external": (
        ("value", "averageValue"),
        "value",
        "may not set both a target value for metric and a per-pod target",
    ),
    "resource": (
        ("averageUtilization", "averageValue"),
        "averageValue",
        "may not set both a target raw value and a target utilization",
    ),
}
"""Source -> (fields that exclude each other, field to report, message)."""


def _target(target: Object, source: str, field: str) -> list[Cause]:
    causes: list[Cause] = []
    kind = target.get("type", "")
    if not kind:
        causes.append(required(f"{field}.type", "must specify a metric target type"))
    if kind not in ("Utilization", "Value", "AverageValue"):
        causes.append(invalid_value(f"{field}.type", kind, "must be either Utilization, Value, or AverageValue"))
    for name in ("value", "averageValue"):
        if target.get(name) is not None and quantity.value_of(target[name]) <= 0:
            causes.append(invalid_value(f"{field}.{name}", target[name], "must be positive"))
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        causes.append(invalid_value(f"{field}.averageUtilization", utilization, "must be greater than 0"))
    source = "resource" if source == "containerResource" else source
    members, reported, words = _TARGETS[source]
    if all(target.get(name) is None for name in members):
        causes.append(required(f"{field}.{reported}", words))
    if source in _NOT_BOTH:
        members, reported, words = _NOT_BOTH[source]
        if all(target.get(name) is not None for name in members):
            causes.append(forbidden(f"{field}.{reported}", words))
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
    tolerance = rules.get("tolerance")
    if tolerance is not None and quantity.value_of(tolerance) < 0:
        causes.append(invalid_value(f"{field}.tolerance", tolerance, NOT_NEGATIVE))
    return causes


def autoscaler_status(new: Object, old: Object) -> list[Cause]:
    """Check that counts and observed generations are not negative."""
    status = new.get("status") or {}
    causes = not_negative(status, "status", "currentReplicas", "desiredReplicas")
    for index, condition in enumerate(status.get("conditions") or ()):
        causes += not_negative(condition, f"status.conditions[{index}]", "observedGeneration")
    return causes
