"""Defaults of the versions of the past (legacy.py): mostly those of today, under the names of the time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin import defaults_groups as today
from kubechronicle.api.values.objects import Object

VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "autoscaling.v2beta1.HorizontalPodAutoscalerSpec": today.VALUES["autoscaling.v2.HorizontalPodAutoscalerSpec"],
    "autoscaling.v2beta2.HorizontalPodAutoscalerSpec": today.VALUES["autoscaling.v2.HorizontalPodAutoscalerSpec"],
    "batch.v1beta1.CronJobSpec": today.VALUES["batch.v1.CronJobSpec"],
    "discovery.v1beta1.EndpointPort": today.VALUES["discovery.v1.EndpointPort"],
}


def autoscaler_v2beta1(obj: Object) -> None:
    """The same target as in v2."""
    spec = obj["spec"]
    if not spec.get("metrics"):
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 80}}]


FUNCTIONS: Final[Mapping[str, Callable[[Object], None]]] = {
    "autoscaling.v2beta1.HorizontalPodAutoscaler": autoscaler_v2beta1,
    "autoscaling.v2beta2.HorizontalPodAutoscaler": today.autoscaler_v2,
}
