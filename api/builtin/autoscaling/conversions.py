"""Converters between HorizontalPodAutoscaler autoscaling/v1 and v2.

Like Kubernetes, v1 keeps in annotations all that it has no fields for: metrics other than CPU, current metrics,
conditions and behavior.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from kubechronicle.api.builtin.common.go_shapes import selector
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
TOLERANCES: Final = (("scaleDown", _PREFIX + "scale-down-tolerance"), ("scaleUp", _PREFIX + "scale-up-tolerance"))
ROUND_TRIP: Final = (METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS, *(name for _, name in TOLERANCES))
"""The annotations that only conversions write. Kubernetes drops them wherever else it finds them."""

DEFAULT_CPU: Final = 80
"""Target of the CPU utilization, in percent, of an autoscaler without metrics."""

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


def status_name(name: str) -> str:
    """Return the status field that corresponds to the spec field ``name`` of a metric."""
    return name.replace("targetAverage", "currentAverage").replace("targetValue", "currentValue")


def old_metric(metric: Object, *, status: bool) -> Object:
    """Return a metric of v2 with the fields of v2beta1, which annotations of v1 have, too."""
    converted: Object = {"type": metric.get("type", "")}
    for source, pairs in METRIC_FIELDS.items():
        if metric.get(source) is None:
            continue
        target_source = converted[source] = {}
        for name, path in pairs:
            value: Any = metric[source]
            for part in (path.replace("target.", "current.") if status else path).split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                target_source[status_name(name) if status else name] = value
    return converted


def is_unused_total(source: str, name: str, value: Any, given: Object, *, status: bool) -> bool:
    """Return whether the target value of an object is zero because it is not optional: an average is set instead."""
    return not status and source == "object" and name == "targetValue" and value == "0" and "averageValue" in given


def new_metric(metric: Object, *, status: bool, is_unused: Callable[..., bool] = is_unused_total) -> Object:
    """Return a metric of v2beta1 or of an annotation with the fields of v2, without values that ``is_unused``."""
    converted: Object = {"type": metric.get("type", "")}
    for source, pairs in METRIC_FIELDS.items():
        given = metric.get(source)
        if given is None:
            continue
        target_source = converted[source] = {}
        for name, path in pairs:
            value = given.get(status_name(name) if status else name)
            if value is None or is_unused(source, name, value, given, status=status):
                continue
            *parents, last = (path.replace("target.", "current.") if status else path).split(".")
            place = target_source
            for part in parents:
                place = place.setdefault(part, {})
            place[last] = value
        if not status:
            target = target_source.setdefault("target", {})
            target["type"] = _target_type(source, target)
    return converted


def _target_type(source: str, target: Object) -> str:
    if source == "pods":
        return "AverageValue"
    if source in ("resource", "containerResource"):
        return "Utilization" if target.get("averageUtilization") is not None else "AverageValue"
    if source == "external":
        return "Value" if target.get("value") is not None else "AverageValue"
    return "AverageValue" if target.get("averageValue") is not None else "Value"


def _annotated(metric: Object, *, status: bool) -> Object:
    """Return a metric as an annotation holds it: with all fields that Go always writes, in Go's order."""
    converted = old_metric(metric, status=status)
    check.check(converted, _metric_type(status=status))
    ordered: Object = {"type": converted["type"]}
    for source, pairs in METRIC_FIELDS.items():
        given = converted.get(source)
        if given is not None:
            members = [status_name(name) if status else name for name, _ in pairs]
            ordered[source] = {name: _in_order(name, given[name]) for name in members if name in given}
    return ordered


def _in_order(name: str, value: Any) -> Any:
    if name in ("selector", "metricSelector"):
        return selector(value)
    if name == "target":
        return {member: value[member] for member in ("kind", "name", "apiVersion") if member in value}
    return value


def _metric_type(*, status: bool) -> types.ObjectType:
    return types.object_type(f"io.k8s.api.autoscaling.v2beta1.Metric{'Status' if status else 'Spec'}")


def _is_cpu(metric: Object, part: str) -> bool:
    resource = metric.get("resource") or {}
    shown = resource.get(part) or {}
    return metric.get("type") == "Resource" and resource.get("name") == "cpu" and "averageUtilization" in shown


def autoscaler_to_v1(obj: Object) -> Object:
    """Return an autoscaler of v2 in v1; annotations hold all that v1 has no fields for."""
    obj = copy_object(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    pop_conversion_annotations(obj)
    notes: dict[str, str] = {}
    new_spec = {name: spec[name] for name in ("scaleTargetRef", "minReplicas", "maxReplicas") if name in spec}
    metrics = spec.get("metrics") or ()
    cpu = next((metric for metric in metrics if _is_cpu(metric, "target")), None)
    if cpu is not None:
        new_spec["targetCPUUtilizationPercentage"] = cpu["resource"]["target"]["averageUtilization"]
    others = [metric for metric in metrics if not _is_cpu(metric, "target")]
    if others:
        notes[METRICS] = go_json([_annotated(metric, status=False) for metric in others])
    if spec.get("behavior") is not None:
        notes[BEHAVIOR] = go_json(behavior_to_annotation(spec["behavior"]))
    kept = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
    new_status = {name: status[name] for name in kept if name in status}
    current = list(status.get("currentMetrics") or ())
    cpu = next((metric for metric in reversed(current) if _is_cpu(metric, "current")), None)
    if cpu is not None:
        new_status["currentCPUUtilizationPercentage"] = cpu["resource"]["current"]["averageUtilization"]
    if current:
        notes[CURRENT_METRICS] = go_json([_annotated(metric, status=True) for metric in current])
    if status.get("conditions"):
        order = ("type", "status", "lastTransitionTime", "reason", "message", "observedGeneration")
        notes[CONDITIONS] = go_json(
            [{name: each[name] for name in order if name in each} for each in status["conditions"]]
        )
    return _finish(obj, "autoscaling/v1", "io.k8s.api.autoscaling.v1.", new_spec, new_status, notes)


def autoscaler_to_v2(obj: Object) -> Object:
    """Return an autoscaler of v1 in v2. Invalid annotations are dropped."""
    obj = copy_object(obj)
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    notes = pop_conversion_annotations(obj)
    new_spec = {name: spec[name] for name in ("scaleTargetRef", "minReplicas", "maxReplicas") if name in spec}
    metrics = _metrics_from_annotation(notes, METRICS, status=False) or []
    utilization = spec.get("targetCPUUtilizationPercentage")
    if utilization is not None or not metrics:
        target = {"type": "Utilization", "averageUtilization": DEFAULT_CPU if utilization is None else utilization}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    new_spec["metrics"] = metrics
    behavior = behavior_from_annotation(notes.get(BEHAVIOR))
    if behavior is not None:
        new_spec["behavior"] = behavior
    kept = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
    new_status = {name: status[name] for name in kept if name in status}
    current = _metrics_from_annotation(notes, CURRENT_METRICS, status=True)
    if current is None and status.get("currentCPUUtilizationPercentage") is not None:
        shown = {"averageUtilization": status["currentCPUUtilizationPercentage"]}
        current = [{"type": "Resource", "resource": {"name": "cpu", "current": shown}}]
    if current:
        new_status["currentMetrics"] = current
    conditions = _json_of(notes, CONDITIONS)
    if conditions and _fits("Status", {"conditions": conditions}):
        new_status["conditions"] = conditions
    return _finish(obj, "autoscaling/v2", "io.k8s.api.autoscaling.v2.", new_spec, new_status, {})


def pop_conversion_annotations(obj: Object) -> dict[str, str]:
    """Remove the annotations that only conversions write, and return them."""
    metadata = obj["metadata"]
    given = metadata.get("annotations") or {}
    taken = {name: given.pop(name) for name in ROUND_TRIP if name in given}
    if not given:
        metadata.pop("annotations", None)
    return taken


def _json_of(notes: Mapping[str, str], name: str) -> Any:
    """Return the decoded JSON of an annotation, or None if it is absent or invalid."""
    try:
        return orjson.loads(notes.get(name, "null"))
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


def _metrics_from_annotation(notes: Mapping[str, str], annotation: str, *, status: bool) -> list[Object] | None:
    """Return the metrics that an annotation holds, or None if it is absent or invalid."""
    held = _json_of(notes, annotation)
    if not isinstance(held, list):
        return None
    metrics: list[Object] = []
    for metric in held:
        if not isinstance(metric, dict | None):
            return None
        try:
            check.check(metric := metric or {}, _metric_type(status=status))
        except check.TypeMismatch:
            return None
        metrics.append(new_metric(metric, status=status))
    return metrics


def _finish(obj: Object, api_version: str, package: str, spec: Object, status: Object, notes: Object) -> Object:
    result: Object = {**obj, "apiVersion": api_version, "spec": spec, "status": status}
    if notes:
        result["metadata"].setdefault("annotations", {}).update(notes)
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
    return behavior if behavior and _fits("Behavior", behavior) else None


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
    ("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v1"): autoscaler_to_v1,
    ("HorizontalPodAutoscaler", "autoscaling/v1", "autoscaling/v2"): autoscaler_to_v2,
}
