"""Converters of HorizontalPodAutoscaler between autoscaling/v2 and v2beta1 or v2beta2.

Source: the conversions of ``pkg/apis/autoscaling`` in Kubernetes 1.20 to 1.25.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.api.builtin.autoscaling.conversions import (
    BEHAVIOR,
    TOLERANCES,
    behavior_from_annotation,
    behavior_to_annotation,
    new_metric,
    old_metric,
    pop_conversion_annotations,
)
from kubechronicle.api.builtin.common.version_conversion import Converter, lossless_pair, typed
from kubechronicle.api.errors.field_errors import go_json
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema import values
from kubechronicle.api.values.objects import Object

V2: Final = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler"
V2BETA1: Final = "io.k8s.api.autoscaling.v2beta1.HorizontalPodAutoscaler"
V2BETA2: Final = "io.k8s.api.autoscaling.v2beta2.HorizontalPodAutoscaler"


def _to_v2beta2(obj: Object) -> Object:
    obj = copy_object(obj)
    pop_conversion_annotations(obj)
    behavior = obj["spec"].get("behavior") or {}
    for direction, name in TOLERANCES:
        tolerance = (behavior.get(direction) or {}).pop("tolerance", None)
        if tolerance is not None:
            obj["metadata"].setdefault("annotations", {})[name] = tolerance
    return typed(obj, "autoscaling/v2beta2", V2BETA2)


def _from_v2beta2(obj: Object) -> Object:
    obj = copy_object(obj)
    taken = pop_conversion_annotations(obj)
    for direction, name in TOLERANCES:
        try:
            tolerance = values.quantity_text(taken[name]) if name in taken else None
        except values.ValueDecodeError:
            continue  # the client has changed the annotation
        if tolerance is not None:
            behavior = obj["spec"].setdefault("behavior", {})
            behavior.setdefault(direction, {})["tolerance"] = tolerance
    return typed(obj, "autoscaling/v2", V2)


def _to_v2beta1(obj: Object) -> Object:
    obj = copy_object(obj)
    pop_conversion_annotations(obj)
    behavior = obj["spec"].pop("behavior", None)
    if behavior is not None:
        note = go_json(behavior_to_annotation(behavior))
        obj["metadata"].setdefault("annotations", {})[BEHAVIOR] = note
    _convert_metrics(obj, lambda metric, status: old_metric(metric, status=status))
    return typed(obj, "autoscaling/v2beta1", V2BETA1)


def _from_v2beta1(obj: Object) -> Object:
    obj = copy_object(obj)
    behavior = behavior_from_annotation(pop_conversion_annotations(obj).get(BEHAVIOR))
    if behavior is not None:
        obj["spec"]["behavior"] = behavior
    _convert_metrics(obj, lambda metric, status: new_metric(metric, status=status, is_unused=_is_filler_zero))
    return typed(obj, "autoscaling/v2", V2)


def _convert_metrics(obj: Object, convert: Callable[[Object, bool], Object]) -> None:
    for part, name, status in (("spec", "metrics", False), ("status", "currentMetrics", True)):
        holder = obj.get(part) or {}
        if holder.get(name):
            holder[name] = [convert(metric, status) for metric in holder[name]]


_AVERAGES: Final = ("averageValue", "currentAverageValue", "targetAverageValue")


def _is_filler_zero(source: str, name: str, value: Any, given: Object, *, status: bool) -> bool:
    """Return whether a total of zero is only the zero value of a non-optional field: next to an average it has no
    meaning."""
    always = source == "object" or (status and source == "external")
    return value == "0" and name == "targetValue" and always and any(average in given for average in _AVERAGES)


CONVERTERS: Final[Mapping[tuple[str, str, str], Converter]] = {
    **lossless_pair("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v2beta1", V2, _to_v2beta1, _from_v2beta1),
    **lossless_pair("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v2beta2", V2, _to_v2beta2, _from_v2beta2),
}
