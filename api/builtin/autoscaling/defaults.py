"""Defaults of HorizontalPodAutoscalers, for each version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.autoscaling.conversions import (
    DEFAULT_CPU,
    METRICS,
    ROUND_TRIP,
    autoscaler_to_v1,
    autoscaler_to_v2,
    pop_conversion_annotations,
)
from kubechronicle.api.values.objects import Object

_SPEC: Final[Mapping[str, Any]] = {"minReplicas": 1}

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "autoscaling.v2.HorizontalPodAutoscalerSpec": _SPEC,
    "autoscaling.v1.HorizontalPodAutoscalerSpec": _SPEC,
    "autoscaling.v2beta1.HorizontalPodAutoscalerSpec": _SPEC,
    "autoscaling.v2beta2.HorizontalPodAutoscalerSpec": _SPEC,
}


def autoscaler_v2(obj: Object) -> None:
    """Set the defaults. Kubernetes' decoder drops the annotations of conversions here, too."""
    if obj["metadata"].get("annotations"):
        pop_conversion_annotations(obj)
    autoscaler_v2beta2(obj)


def autoscaler_v2beta2(obj: Object) -> None:
    """Default to a target of the requested CPU, and fill in scaling rules if a behavior is present. The annotations of
    conversions stay: they hold the tolerances that this version has no fields for."""
    spec = obj["spec"]
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": DEFAULT_CPU}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = spec.get("behavior")
    if behavior is None:
        return
    behavior["scaleUp"] = _scaling_rules(
        behavior.get("scaleUp"),
        {
            "stabilizationWindowSeconds": 0,
            "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ],
        },
    )
    behavior["scaleDown"] = _scaling_rules(
        behavior.get("scaleDown"), {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
    )


def _scaling_rules(given: Object | None, fallback: Object) -> Object:
    rules: Object = {**fallback, "selectPolicy": "Max"}
    for name, value in (given or {}).items():
        if value is not None:
            rules[name] = value
    return rules


def autoscaler_v1(obj: Object) -> None:
    """Set the same CPU target as in v2, unless the annotation holds metrics.

    Annotations of conversions become what Kubernetes makes of them when it decodes and encodes the object.
    """
    notes = obj["metadata"].get("annotations") or {}
    spec = obj["spec"]
    if spec.get("targetCPUUtilizationPercentage") is None and METRICS not in notes:
        spec["targetCPUUtilizationPercentage"] = DEFAULT_CPU
    if not notes.keys().isdisjoint(ROUND_TRIP):
        obj.update(autoscaler_to_v1(autoscaler_to_v2(obj)))


def autoscaler_v2beta1(obj: Object) -> None:
    """Set the same CPU target as in v2."""
    spec = obj["spec"]
    if not spec.get("metrics"):
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": DEFAULT_CPU}}]


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "autoscaling.v2.HorizontalPodAutoscaler": autoscaler_v2,
    "autoscaling.v1.HorizontalPodAutoscaler": autoscaler_v1,
    "autoscaling.v2beta1.HorizontalPodAutoscaler": autoscaler_v2beta1,
    "autoscaling.v2beta2.HorizontalPodAutoscaler": autoscaler_v2beta2,
}
