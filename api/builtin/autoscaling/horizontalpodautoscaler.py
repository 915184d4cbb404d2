"""HorizontalPodAutoscaler: bounds and metrics for the number of pods of a workload.

The files beside this one have its validation, and its conversions between four versions. Source: Kubernetes'
``registry/autoscaling/horizontalpodautoscaler``, ``apis/autoscaling`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.autoscaling import conversions, conversions_beta, horizontalpodautoscaler_validation
from kubechronicle.api.builtin.autoscaling.conversions import (
    DEFAULT_CPU,
    METRICS,
    ROUND_TRIP,
    autoscaler_to_v1,
    autoscaler_to_v2,
    pop_conversion_annotations,
)
from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field_column, name_of
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object, ReadOnlyObject

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
    converters={**conversions.CONVERTERS, **conversions_beta.CONVERTERS},
)
