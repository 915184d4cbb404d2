"""Validation of built-in kinds, rule by rule: a good object with one thing made wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubechronicle.api.builtin.batch.cronjob.validation import schedule_problem
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import pipeline
from kubechronicle.api.pipeline.pipeline import WriteContext
from kubechronicle.api.registry.registry import builtin_registry

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
WORKLOAD: dict[str, Any] = {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}
ONCE: dict[str, Any] = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
TARGET = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}

GOOD: dict[str, dict[str, Any]] = {
    "/v1/pods": {"spec": TEMPLATE["spec"]},
    "/v1/services": {"spec": {"ports": [{"port": 80}]}},
    "/v1/secrets": {"stringData": {"k": "v"}},
    "apps/v1/deployments": {"spec": WORKLOAD},
    "apps/v1/daemonsets": {"spec": WORKLOAD},
    "apps/v1/statefulsets": {"spec": WORKLOAD},
    "batch/v1/jobs": {"spec": {"template": ONCE}},
    "batch/v1/cronjobs": {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": ONCE}}}},
    "autoscaling/v2/horizontalpodautoscalers": {"spec": {"scaleTargetRef": TARGET, "maxReplicas": 3}},
    "policy/v1/poddisruptionbudgets": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
    "coordination.k8s.io/v1/leases": {"spec": {"leaseDurationSeconds": 1}},
}


def causes(path: str, change: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (field, message) of what is wrong with the good object after a merge patch."""
    group, version, plural = path.split("/")
    rt = builtin_registry().lookup(group, version, plural)
    assert rt is not None
    ctx = WriteContext(now="2026-01-01T00:00:00Z", uid="u", manager="m", namespace="n")
    good: dict[str, Any] = json.loads(json.dumps({"metadata": {"name": "a"}, **GOOD[path]}))
    from kubechronicle.api.patch import merge_patch

    obj, _ = pipeline.decode_object(rt, merge_patch.apply(good, change), ctx, create=True)
    try:
        pipeline.prepare_create(rt, obj, ctx)
    except StatusError as refusal:
        return [(cause["field"], cause["message"]) for cause in (refusal.details or {})["causes"]]
    return []


@pytest.mark.parametrize("path", GOOD)
def test_good_objects_are_good(path: str) -> None:
    assert causes(path, {}) == []


def container(**more: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "i", **more}]}}


@pytest.mark.parametrize(
    ("path", "change", "field", "message"),
    [
        ("/v1/pods", {"spec": {"containers": None}}, "spec.containers", "Required value"),
        ("/v1/pods", container(name="C"), "spec.containers[0].name", 'Invalid value: "C": a lowercase RFC 1123 label'),
        ("/v1/pods", container(image=""), "spec.containers[0].image", "Required value"),
        (
            "/v1/pods",
            container(volumeMounts=[{"name": "v", "mountPath": "/x"}]),
            "spec.containers[0].volumeMounts[0].name",
            'Not found: "v"',
        ),
        (
            "/v1/pods",
            container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
            "spec.containers[0].resources.requests",
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            "/v1/pods",
            container(env=[{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
            "spec.containers[0].env[0].valueFrom",
            'Invalid value: "": may not be specified when `value` is not empty',
        ),
        (
            "/v1/pods",
            {"spec": {"restartPolicy": "Maybe"}},
            "spec.restartPolicy",
            'Unsupported value: "Maybe": supported values: "Always", "OnFailure", "Never"',
        ),
        ("/v1/services", {"spec": {"ports": None}}, "spec.ports", "Required value"),
        ("/v1/services", {"spec": {"type": "X"}}, "spec.type", 'Unsupported value: "X": supported values: "ClusterIP"'),
        (
            "/v1/secrets",
            {"stringData": {"a b": "c"}},
            "data[a b]",
            'Invalid value: "a b": a valid config key must consist of',
        ),
        (
            "/v1/secrets",
            {"type": "kubernetes.io/tls", "stringData": {"tls.crt": "x"}},
            "data[tls.key]",
            "Required value",
        ),
        (
            "apps/v1/deployments",
            {"spec": {"selector": {"matchLabels": {"app": "b"}}}},
            "spec.template.metadata.labels",
            'Invalid value: {"app":"a"}: `selector` does not match template `labels`',
        ),
        ("apps/v1/deployments", {"spec": {"replicas": -1}}, "spec.replicas", "Invalid value: -1: must be greater than"),
        (
            "apps/v1/deployments",
            {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}},
            "spec.strategy.rollingUpdate.maxUnavailable",
            'Invalid value: "0%": may not be 0 when `maxSurge` is 0',
        ),
        (
            "apps/v1/daemonsets",
            {"spec": {"updateStrategy": {"type": "Now"}}},
            "spec.updateStrategy",
            'Unsupported value: {"Type":"Now","RollingUpdate":null}: supported values: "RollingUpdate", "OnDelete"',
        ),
        (
            "apps/v1/statefulsets",
            {"spec": {"podManagementPolicy": "X"}},
            "spec.podManagementPolicy",
            "Invalid value: \"X\": must be 'OrderedReady' or 'Parallel'",
        ),
        (
            "batch/v1/jobs",
            {"spec": {"template": {"spec": {"restartPolicy": "Always"}}}},
            "spec.template.spec.restartPolicy",
            'Required value: valid values: "OnFailure", "Never"',
        ),
        (
            "batch/v1/cronjobs",
            {"spec": {"timeZone": "Mars/Olympus"}},
            "spec.timeZone",
            'Invalid value: "Mars/Olympus": unknown time zone Mars/Olympus',
        ),
        (
            "autoscaling/v2/horizontalpodautoscalers",
            {"spec": {"minReplicas": 9}},
            "spec.maxReplicas",
            "Invalid value: 3: must be greater than or equal to `minReplicas`",
        ),
        (
            "policy/v1/poddisruptionbudgets",
            {"spec": {"minAvailable": "150%"}},
            "spec.minAvailable",
            'Invalid value: "150%": must not be greater than 100%',
        ),
        (
            "coordination.k8s.io/v1/leases",
            {"spec": {"leaseDurationSeconds": 0}},
            "spec.leaseDurationSeconds",
            "Invalid value: 0: must be greater than 0",
        ),
    ],
)
def test_one_thing_wrong(path: str, change: dict[str, Any], field: str, message: str) -> None:
    found = causes(path, change)
    assert [where for where, _ in found] == [field]
    assert found[0][1].startswith(message)


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("*/5 * * * *", ""),
        ("0 0 1-15 jan,mar mon-fri", ""),
        ("TZ=UTC 0 0 * * *", ""),
        ("@hourly", ""),
        ("@every 1h30m", ""),
        ("every day", "expected exactly 5 fields, found 2: [every day]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("@never", "unrecognized descriptor: @never"),
    ],
)
def test_schedules(schedule: str, problem: str) -> None:
    assert schedule_problem(schedule) == problem
