"""HorizontalPodAutoscaler: bounds and metrics for the number of pods of a workload.

The files beside this one have its validation, and its conversions between four versions. Source: Kubernetes'
``registry/autoscaling/horizontalpodautoscaler``, ``apis/autoscaling`` and ``pkg/printers/internalversion``.

Converters of HorizontalPodAutoscaler between autoscaling/v2 and v2beta1 or v2beta2.

Source: the conversions of ``pkg/apis/autoscaling`` in Kubernetes 1.20 to 1.25.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.autoscaling import conversions, horizontalpodautoscaler_validation
from kubechronicle.api.builtin.autoscaling.conversions import (
    BEHAVIOR,
    DEFAULT_CPU,
    METRICS,
    ROUND_TRIP,
    TOLERANCES,
    autoscaler_to_v1,
    autoscaler_to_v2,
    behavior_from_annotation,
    behavior_to_annotation,
    new_metric,
    old_metric,
    pop_conversion_annotations,
)
from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field_column, name_of
from kubechronicle.api.builtin.common.version_conversion import Converter, lossless_pair, typed
from kubechronicle.api.errors.field_errors import go_json
from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.schema import values
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object, ReadOnlyObject

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


# -- defaults ---------------------------------------------------------------------------------------------------------

_SPEC: Final[Mapping[str, Any]] = {"minReplicas": 1}


def default_autoscaler_v2(obj: Object) -> None:
    """Set the defaults. Kubernetes' decoder drops the annotations of conversions here, too."""
    if obj["metadata"].get("annotations"):
        pop_conversion_annotations(obj)
    default_autoscaler_v2beta2(obj)


def default_autoscaler_v2beta2(obj: Object) -> None:
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


def default_autoscaler_v1(obj: Object) -> None:
    """Set the same CPU target as in v2, unless the annotation holds metrics.

    Annotations of conversions become what Kubernetes makes of them when it decodes and encodes the object.
    """
    notes = obj["metadata"].get("annotations") or {}
    spec = obj["spec"]
    if spec.get("targetCPUUtilizationPercentage") is None and METRICS not in notes:
        spec["targetCPUUtilizationPercentage"] = DEFAULT_CPU
    if not notes.keys().isdisjoint(ROUND_TRIP):
        obj.update(autoscaler_to_v1(autoscaler_to_v2(obj)))


def default_autoscaler_v2beta1(obj: Object) -> None:
    """Set the same CPU target as in v2."""
    spec = obj["spec"]
    if not spec.get("metrics"):
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": DEFAULT_CPU}}]


# -- table columns ----------------------------------------------------------------------------------------------------

METRICS_SHOWN: Final = 2
_UNKNOWN: Final = "<unknown>"


def _amount(spec: ReadOnlyObject, current: ReadOnlyObject | None) -> str:
    """Return "current/target" of an external or object metric, for its average or its total value."""
    target = spec.get("target") or {}
    if target.get("averageValue") is not None:
        return f"{at(current, 'current', 'averageValue', default=_UNKNOWN)}/{target['averageValue']} (avg)"
    return f"{at(current, 'current', 'value', default=_UNKNOWN)}/{target.get('value')}"


def _average(spec: ReadOnlyObject, current: ReadOnlyObject | None) -> str:
    wanted = at(spec, "target", "averageValue")
    return f"{at(current, 'current', 'averageValue', default=_UNKNOWN)}/{wanted}"


def _resource(spec: ReadOnlyObject, current: ReadOnlyObject | None) -> str:
    if at(spec, "target", "averageValue") is not None:
        return f"{spec.get('name', '')}: {_average(spec, current)}"
    used = at(current, "current", "averageUtilization")
    wanted = at(spec, "target", "averageUtilization")
    now = _UNKNOWN if used is None else f"{used}%"
    return f"{spec.get('name', '')}: {now}/{'<auto>' if wanted is None else f'{wanted}%'}"


_METRICS: Final[Mapping[str, tuple[str, Callable[[ReadOnlyObject, ReadOnlyObject | None], str]]]] = {
    "External": ("external", _amount),
    "Object": ("object", _amount),
    "Pods": ("pods", _average),
    "Resource": ("resource", _resource),
    "ContainerResource": ("containerResource", _resource),
}


def _metrics(specs: Sequence[ReadOnlyObject], statuses: Sequence[ReadOnlyObject]) -> str:
    texts = []
    for position, spec in enumerate(specs[:METRICS_SHOWN]):
        source, text = _METRICS.get(spec.get("type", ""), ("", None))
        current = statuses[position].get(source) if position < len(statuses) else None
        texts.append("<unknown type>" if text is None else text(spec.get(source) or {}, current))
    more = len(specs) - METRICS_SHOWN
    return ", ".join(texts) + (f" + {more} more..." if more > 0 else "")


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    target = spec.get("scaleTargetRef") or {}
    metrics = spec.get("metrics") or ()
    least = spec.get("minReplicas")
    return [
        name_of(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(metrics, at(obj, "status", "currentMetrics", default=())) if metrics else "<none>",
        "<unset>" if least is None else str(least),
        spec.get("maxReplicas") or 0,
        at(obj, "status", "currentReplicas", default=0),
        age_of(obj, since),
    ]


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="horizontalpodautoscalers.autoscaling",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        subresources=MappingProxyType(
            {"status": status_update("spec", validate_update=horizontalpodautoscaler_validation.autoscaler_status)}
        ),
        validate=horizontalpodautoscaler_validation.autoscaler,
        validate_update=horizontalpodautoscaler_validation.autoscaler_update,
        options_in_use=MappingProxyType({"HPAScaleToZero": lambda old: old["spec"].get("minReplicas") == 0}),
        with_gates={"HPAGeneration": {"generation": True}},
    ),
    gated_fields={
        "": (GatedField(gate="HPAConfigurableTolerance", fields=("spec.behavior.(scaleUp|scaleDown).tolerance",)),),
    },
    default_values={
        "autoscaling.v2.HorizontalPodAutoscalerSpec": _SPEC,
        "autoscaling.v1.HorizontalPodAutoscalerSpec": _SPEC,
        "autoscaling.v2beta1.HorizontalPodAutoscalerSpec": _SPEC,
        "autoscaling.v2beta2.HorizontalPodAutoscalerSpec": _SPEC,
    },
    default_functions={
        "autoscaling.v2.HorizontalPodAutoscaler": default_autoscaler_v2,
        "autoscaling.v1.HorizontalPodAutoscaler": default_autoscaler_v1,
        "autoscaling.v2beta1.HorizontalPodAutoscaler": default_autoscaler_v2beta1,
        "autoscaling.v2beta2.HorizontalPodAutoscaler": default_autoscaler_v2beta2,
    },
    printer=Printer(
        (
            NAME,
            field_column("Reference", "autoscaling.v2.HorizontalPodAutoscalerSpec.scaleTargetRef"),
            field_column("Targets", "autoscaling.v2.HorizontalPodAutoscalerSpec.metrics"),
            field_column("MinPods", "autoscaling.v2.HorizontalPodAutoscalerSpec.minReplicas"),
            field_column("MaxPods", "autoscaling.v2.HorizontalPodAutoscalerSpec.maxReplicas"),
            field_column("Replicas", "autoscaling.v2.HorizontalPodAutoscalerStatus.currentReplicas"),
            AGE,
        ),
        _cells,
    ),
    converters={**conversions.CONVERTERS, **CONVERTERS},
)
