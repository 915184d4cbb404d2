"""Validation of HorizontalPodAutoscalers."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import causes, create
from rejections import causes_of_change, rejection_causes

from kubechronicle.api.builtin.autoscaling.conversions import CURRENT_METRICS, METRICS
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline.conversion import convert

SCALER: dict[str, Any] = {
    "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
    "maxReplicas": 3,
}


@pytest.mark.parametrize(
    ("path", "change", "field", "message"),
    [
        (
            "autoscaling/v2/horizontalpodautoscalers",
            {"spec": {"minReplicas": 9}},
            "spec.maxReplicas",
            "Invalid value: 3: must be greater than or equal to `minReplicas`",
        ),
    ],
)
def test_one_invalid_field(path: str, change: dict[str, Any], field: str, message: str) -> None:
    found = causes_of_change(path, change)
    assert [name for name, _ in found] == [field]
    assert found[0][1].startswith(message)


@pytest.mark.parametrize(
    ("path", "spec", "causes"),
    [
        (
            "autoscaling/v2/horizontalpodautoscalers",
            {**SCALER, "behavior": {"scaleUp": {"policies": []}}},
            [("behavior.scaleUp.policies", "Required value: must specify at least one Policy")],
        ),
        (
            "autoscaling/v2/horizontalpodautoscalers",
            {
                **SCALER,
                "minReplicas": 5,
                "behavior": {"scaleUp": {"tolerance": "-1", "stabilizationWindowSeconds": 4000}},
            },
            [
                ("maxReplicas", "Invalid value: 3: must be greater than or equal to `minReplicas`"),
                (
                    "behavior.scaleUp.stabilizationWindowSeconds",
                    "Invalid value: 4000: must be less than or equal to 3600",
                ),
                ("behavior.scaleUp.tolerance", 'Invalid value: "-1": must be greater than or equal to 0'),
            ],
        ),
        (
            "autoscaling/v2/horizontalpodautoscalers",
            {
                **SCALER,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}],
            },
            [
                (
                    "metrics[0].resource.target.averageUtilization",
                    "Required value: must set either a target raw value or a target utilization",
                )
            ],
        ),
    ],
)
def test_messages_of_creations(path: str, spec: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_causes(path, {"spec": spec}) == [(f"spec.{field}", message) for field, message in causes]


PATH = "autoscaling/v2/horizontalpodautoscalers"
NO_GROUP = "apiVersion must specify API group"


def _target(**reference: str) -> dict[str, Any]:
    return {"maxReplicas": 3, "scaleTargetRef": {"name": "d", "kind": "Deployment", **reference}}


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ({"apiVersion": "v1"}, f'Invalid value: "v1": {NO_GROUP}'),
        ({}, f'Invalid value: "": {NO_GROUP}'),
        ({"apiVersion": "v1", "kind": "ReplicationController"}, None),
        ({"apiVersion": "a/b/c"}, 'Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'),
    ],
)
def test_the_target_needs_an_api_group(reference: dict[str, str], problem: str | None) -> None:
    expected = [("spec.scaleTargetRef.apiVersion", problem)] if problem else []
    assert rejection_causes(PATH, {"spec": _target(**reference)}) == expected


def test_a_described_object_needs_no_api_group() -> None:
    source = {
        "describedObject": {"kind": "Service", "name": "s"},
        "metric": {"name": "m"},
        "target": {"type": "Value", "value": "5"},
    }
    assert rejection_causes(PATH, {"spec": {**SCALER, "metrics": [{"type": "Object", "object": source}]}}) == []


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
PODS = {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "5"}}}
NOTE = '[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"5"}}]'


def _converted(api_version: str, **content: Any) -> dict[str, Any]:
    obj = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}, "spec": {}, "status": {}, **content}
    other = "autoscaling/v2" if api_version == "autoscaling/v1" else "autoscaling/v1"
    return convert({"apiVersion": api_version, **obj}, other)


def test_metrics_of_the_annotation_come_before_the_cpu() -> None:
    converted = _converted(
        "autoscaling/v1",
        metadata={"name": "a", "annotations": {METRICS: NOTE}},
        spec={**SCALER, "targetCPUUtilizationPercentage": 50},
    )
    assert converted["spec"]["metrics"] == [PODS, CPU]
    assert "annotations" not in converted["metadata"]


@pytest.mark.parametrize("text", ["[]", "[{}", "null", '{"a":1}', '[{"type":1}]'])
def test_an_annotation_without_metrics_leaves_the_default(text: str) -> None:
    converted = _converted("autoscaling/v1", metadata={"name": "a", "annotations": {METRICS: text}}, spec=SCALER)
    assert [metric["resource"]["target"]["averageUtilization"] for metric in converted["spec"]["metrics"]] == [80]


def test_every_target_of_cpu_utilization_is_left_out_of_the_annotation() -> None:
    converted = _converted("autoscaling/v2", spec={**SCALER, "metrics": [CPU, PODS, CPU]})
    assert converted["metadata"]["annotations"] == {METRICS: NOTE}
    assert converted["spec"]["targetCPUUtilizationPercentage"] == 50


def test_current_averages_of_the_annotation_are_never_left_out() -> None:
    current = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 5}}}]
    converted = _converted("autoscaling/v2", spec=SCALER, status={"currentMetrics": current})
    assert converted["metadata"]["annotations"] == {
        CURRENT_METRICS: '[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":5,'
        '"currentAverageValue":"0"}}]'
    }


def test_annotations_made_by_the_conversion_have_owners() -> None:
    stored = create(
        "autoscaling/v1/horizontalpodautoscalers",
        {"spec": SCALER, "status": {"currentReplicas": 1, "currentCPUUtilizationPercentage": 5}},
    )
    [entry] = stored["metadata"]["managedFields"]
    assert entry["fieldsV1"]["f:metadata"] == {"f:annotations": {".": {}, f"f:{CURRENT_METRICS}": {}}}
    assert "annotations" not in stored["metadata"]


@pytest.mark.parametrize("name", ["A b", "a=b"])
def test_the_name_of_an_autoscaler_is_a_subdomain(name: str) -> None:
    with pytest.raises(StatusError) as rejected:
        create("autoscaling/v2/horizontalpodautoscalers", {"spec": SCALER}, name)
    assert causes(rejected.value)[0].startswith("metadata.name: Invalid value")
