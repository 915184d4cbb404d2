"""Table columns of HorizontalPodAutoscalers and Scales. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field, name_of
from kubechronicle.api.values.objects import ReadOnlyObject

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


def _autoscaler(obj: ReadOnlyObject, since: Since) -> list[Any]:
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


def _scale(obj: ReadOnlyObject, since: Since) -> list[Any]:
    desired, available = at(obj, "spec", "replicas", default=0), at(obj, "status", "replicas", default=0)
    return [name_of(obj), desired, available, age_of(obj, since)]


def _custom_scale(obj: ReadOnlyObject, since: Since) -> list[Any]:
    name, desired, *others = _scale(obj, since)
    return [name, desired if "replicas" in obj.get("spec", {}) else None, *others]


SCALE: Final = Printer(
    (
        Column("Name", field="ObjectMeta.name"),
        field("Desired", "autoscaling.v1.ScaleSpec.replicas", "integer"),
        field("Available", "autoscaling.v1.ScaleStatus.replicas", "integer"),
        AGE,
    ),
    _scale,
)
"""Columns of the scale subresource, the same for every built-in kind that scales."""

CUSTOM_SCALE: Final = Printer(
    (
        NAME,
        Column("Desired", "integer", text="Number of desired replicas"),
        Column("Available", "integer", text="Number of actual replicas"),
        Column(AGE.name, "date", field=AGE.field),
    ),
    _custom_scale,
)
"""Columns of the scale subresource of custom resources (apiextensions-apiserver ``pkg/apiserver``)."""

PRINTERS: Final[Mapping[str, Printer]] = {
    "horizontalpodautoscalers.autoscaling": Printer(
        (
            NAME,
            field("Reference", "autoscaling.v2.HorizontalPodAutoscalerSpec.scaleTargetRef"),
            field("Targets", "autoscaling.v2.HorizontalPodAutoscalerSpec.metrics"),
            field("MinPods", "autoscaling.v2.HorizontalPodAutoscalerSpec.minReplicas"),
            field("MaxPods", "autoscaling.v2.HorizontalPodAutoscalerSpec.maxReplicas"),
            field("Replicas", "autoscaling.v2.HorizontalPodAutoscalerStatus.currentReplicas"),
            AGE,
        ),
        _autoscaler,
    ),
}
