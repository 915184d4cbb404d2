"""Converters between HorizontalPodAutoscaler autoscaling/v1 and v2.

Like Kubernetes, v1 keeps in annotations all that it has no fields for: metrics other than CPU, current metrics,
conditions and behavior.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from kubechronicle.api.builtin.common.version_conversion import Converter
from kubechronicle.api.errors.field_errors import go_json
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema import check, types
from kubechronicle.api.values.objects import Object

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
METRICS: Final = _PREFIX + "metrics"
CURRENT_METRICS: Final = _PREFIX + "current-metrics"
CONDITIONS: Final = _PREFIX + "conditions"
BEHAVIOR: Final = _PREFIX + "behavior"

METRIC_FIELDS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    # source: pairs of (v1 and v2beta1 field, path in v2 relative to the source), in the order in which v1 writes them
    "object": (
        ("target", "describedObject"),
        ("metricName", "metric.name"),
        ("targetValue", "target.value"),
        ("selector", "metric.selector"),
        ("averageValue", "target.averageValue"),
    ),
    "pods": (
        ("metricName", "metric.name"),
        ("targetAverageValue", "target.averageValue"),
        ("selector", "metric.selector"),
    ),
    "resource": (
        ("name", "name"),
        ("targetAverageUtilization", "target.averageUtilization"),
        ("targetAverageValue", "target.averageValue"),
    ),
    "containerResource": (
        ("name", "name"),
        ("targetAverageUtilization", "target.averageUtilization"),
        ("targetAverageValue", "target.averageValue"),
        ("container", "container"),
    ),
    "external": (
        ("metricName", "metric.name"),
        ("metricSelector", "metric.selector"),
        ("targetValue", "target.value"),
        ("targetAverageValue", "target.averageValue"),
    ),
}
_SOURCES: Final = {"Object": "object", "Pods": "pods", "Resource": "resource", "External": "external"} | {
    "ContainerResource": "containerResource"
}


def status_name(name: str) -> str:
    """Return the status field that corresponds to the spec field ``name`` of a metric."""
    return name.replace("targetAverage", "currentAverage").replace("targetValue", "currentValue")


def _metric_to_v1(metric: Object, *, status: bool) -> Object:
    kind = metric.get("type", "")
    source = _SOURCES.get(kind, "")
    converted: Object = {}
    for name, path in METRIC_FIELDS.get(source, ()):
        value: Any = metric.get(source) or {}
        for part in (path.replace("target.", "current.") if status else path).split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            converted[status_name(name) if status else name] = value
    return {"type": kind, source: converted} if source else {"type": kind}


def _metric_to_v2(metric: Object, *, status: bool) -> Object:
    kind = metric.get("type", "")
    source = _SOURCES.get(kind, "")
    given = metric.get(source) or {}
    converted: Object = {}
    for name, path in METRIC_FIELDS.get(source, ()):
        value = given.get(status_name(name) if status else name)
        if value is None or (value == "0" and name == "targetValue" and source == "object" and "averageValue" in given):
            continue
        *parents, last = (path.replace("target.", "current.") if status else path).split(".")
        below = converted
        for part in parents:
            below = below.setdefault(part, {})
        below[last] = value
    if not status and source:
        target = converted.setdefault("target", {})
        words = (("averageUtilization", "Utilization"), ("averageValue", "AverageValue"), ("value", "Value"))
        target["type"] = next((word for name, word in words if name in target), "Value")
    return {"type": kind, source: converted} if source else {"type": kind}


def _is_cpu(metric: Object, part: str) -> bool:
    resource = metric.get("resource") or {}
    shown = resource.get(part) or {}
    return metric.get("type") == "Resource" and resource.get("name") == "cpu" and "averageUtilization" in shown


def _autoscaler_to_v1(obj: Object) -> Object:
    obj = copy_object(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    notes = dict(obj["metadata"].get("annotations") or {})
    new_spec = {name: spec[name] for name in ("scaleTargetRef", "minReplicas", "maxReplicas") if name in spec}
    others = list(spec.get("metrics") or ())
    cpu = next((metric for metric in others if _is_cpu(metric, "target")), None)
    if cpu is not None:
        others.remove(cpu)
        new_spec["targetCPUUtilizationPercentage"] = cpu["resource"]["target"]["averageUtilization"]
    if others:
        notes[METRICS] = go_json([_metric_to_v1(metric, status=False) for metric in others])
    if spec.get("behavior") is not None:
        notes[BEHAVIOR] = go_json(behavior_to_annotation(spec["behavior"]))
    kept = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
    new_status = {name: status[name] for name in kept if name in status}
    current = list(status.get("currentMetrics") or ())
    cpu = next((metric for metric in current if _is_cpu(metric, "current")), None)
    if cpu is not None:
        new_status["currentCPUUtilizationPercentage"] = cpu["resource"]["current"]["averageUtilization"]
    if current:
        notes[CURRENT_METRICS] = go_json([_metric_to_v1(metric, status=True) for metric in current])
    if status.get("conditions"):
        order = ("type", "status", "lastTransitionTime", "reason", "message")
        notes[CONDITIONS] = go_json(
            [{name: each[name] for name in order if name in each} for each in status["conditions"]]
        )
    return _finish(obj, "autoscaling/v1", "io.k8s.api.autoscaling.v1.", new_spec, new_status, notes)


def _autoscaler_to_v2(obj: Object) -> Object:
    obj = copy_object(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    notes = dict(obj["metadata"].get("annotations") or {})
    new_spec = {name: spec[name] for name in ("scaleTargetRef", "minReplicas", "maxReplicas") if name in spec}
    metrics: list[Object] = []
    if spec.get("targetCPUUtilizationPercentage") is not None:
        target = {"type": "Utilization", "averageUtilization": spec["targetCPUUtilizationPercentage"]}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    metrics += _metrics_from_annotation(notes, METRICS, "Spec", "metrics", status=False)
    if metrics:
        new_spec["metrics"] = metrics
    behavior = behavior_from_annotation(notes.pop(BEHAVIOR, None))
    if behavior is not None:
        new_spec["behavior"] = behavior
    kept = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
    new_status = {name: status[name] for name in kept if name in status}
    current = _metrics_from_annotation(notes, CURRENT_METRICS, "Status", "currentMetrics", status=True)
    if not current and status.get("currentCPUUtilizationPercentage") is not None:
        shown = {"averageUtilization": status["currentCPUUtilizationPercentage"]}
        current = [{"type": "Resource", "resource": {"name": "cpu", "current": shown}}]
    if current:
        new_status["currentMetrics"] = current
    conditions = _pop_json(notes, CONDITIONS)
    if conditions and _fits("Status", {"conditions": conditions}):
        new_status["conditions"] = conditions
    return _finish(obj, "autoscaling/v2", "io.k8s.api.autoscaling.v2.", new_spec, new_status, notes)


def _pop_json(notes: dict[str, str], name: str) -> Any:
    """Remove an annotation and return its decoded JSON, or None if it is invalid."""
    try:
        return orjson.loads(notes.pop(name, "null"))
    except orjson.JSONDecodeError:
        return None


def _fits(part: str, value: Object) -> bool:
    """Return whether annotation content has the types of the v2 ``part``; clients may write anything into
    annotations."""
    try:
        check.check(copy_object(value), types.object_type(f"io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler{part}"))
    except check.TypeMismatch:
        return False
    return True


def _metrics_from_annotation(
    notes: dict[str, str], annotation: str, part: str, name: str, *, status: bool
) -> list[Object]:
    converted = _pop_json(notes, annotation)
    if not isinstance(converted, list) or not all(isinstance(metric, dict) for metric in converted):
        return []
    sources = [metric.get(_SOURCES.get(str(metric.get("type")), "")) for metric in converted]
    if not all(source is None or isinstance(source, dict) for source in sources):
        return []
    metrics = [_metric_to_v2(metric, status=status) for metric in converted]
    return metrics if _fits(part, {name: metrics}) else []


def _finish(obj: Object, api_version: str, package: str, spec: Object, status: Object, notes: Object) -> Object:
    result: Object = {**obj, "apiVersion": api_version, "spec": spec, "status": status}
    if notes:
        result["metadata"]["annotations"] = notes
    else:
        result["metadata"].pop("annotations", None)
    check.check(result, types.object_type(package + "HorizontalPodAutoscaler"))
    return result


_RULES: Final = (("scaleUp", "ScaleUp"), ("scaleDown", "ScaleDown"))
_POLICY: Final = (("type", "Type"), ("value", "Value"), ("periodSeconds", "PeriodSeconds"))


def behavior_to_annotation(behavior: Object) -> Object:
    """Return a behavior in the form of the annotation BEHAVIOR, which uses Go's field names."""
    note: Object = {}
    for name, shown in _RULES:
        rules = behavior.get(name)
        if rules is None:
            note[shown] = None
            continue
        policies = rules.get("policies")
        if policies is not None:  # absent and empty lists have different defaults
            policies = [{to: policy.get(of) for of, to in _POLICY} for policy in policies]
        note[shown] = {
            "StabilizationWindowSeconds": rules.get("stabilizationWindowSeconds"),
            "SelectPolicy": rules.get("selectPolicy"),
            "Policies": policies,
            "Tolerance": rules.get("tolerance"),
        }
    return note


def behavior_from_annotation(text: str | None) -> Object | None:
    """Return the behavior that an annotation holds, or None if it is absent or invalid."""
    try:
        note = orjson.loads(text or "null")
        behavior = _behavior_from_json(note) if isinstance(note, dict) else None
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        return None
    return behavior if behavior is not None and _fits("Behavior", behavior) else None


def _behavior_from_json(note: Object) -> Object:
    behavior: Object = {}
    for name, shown in _RULES:
        rules = note.get(shown)
        if rules is None:
            continue
        policies = rules.get("Policies")
        if policies is not None:
            policies = [{of: policy.get(to) for of, to in _POLICY} for policy in policies]
        converted = {
            "stabilizationWindowSeconds": rules.get("StabilizationWindowSeconds"),
            "selectPolicy": rules.get("SelectPolicy"),
            "policies": policies,
            "tolerance": rules.get("Tolerance"),
        }
        behavior[name] = {member: value for member, value in converted.items() if value is not None}
    return behavior


CONVERTERS: Final[Mapping[tuple[str, str, str], Converter]] = {
    ("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v1"): _autoscaler_to_v1,
    ("HorizontalPodAutoscaler", "autoscaling/v1", "autoscaling/v2"): _autoscaler_to_v2,
}
