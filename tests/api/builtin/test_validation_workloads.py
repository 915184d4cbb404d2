"""Rules of the kinds that make pods, and of claims and nodes: refused creations and changes, with their words."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refusal

from kubechronicle.api.builtin.common.go_shapes import difference

CONTAINER = {"name": "c", "image": "i"}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
WORKLOAD: dict[str, Any] = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
JOB: dict[str, Any] = {"template": {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}}
SCALER: dict[str, Any] = {
    "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
    "maxReplicas": 3,
}
CLAIM: dict[str, Any] = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
    "storageClassName": "x",
}
NO_CHANGE_OF_SET = (
    "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' "
    "are forbidden"
)
NO_CHANGE_OF_CLAIM = (
    "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName "
    "for bound claims\n"
)


@pytest.mark.parametrize(
    ("path", "spec", "causes"),
    [
        (
            "apps/v1/statefulsets",
            {**WORKLOAD, "podManagementPolicy": "X", "ordinals": {"start": -1}},
            [
                ("podManagementPolicy", "Invalid value: \"X\": must be 'OrderedReady' or 'Parallel'"),
                ("ordinals.start", "Invalid value: -1: must be greater than or equal to 0"),
            ],
        ),
        ("apps/v1/statefulsets", {**WORKLOAD, "revisionHistoryLimit": -1}, []),
        (
            "apps/v1/daemonsets",
            {
                **WORKLOAD,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}},
            },
            [("updateStrategy.rollingUpdate.maxUnavailable", "Required value: cannot be 0 when maxSurge is 0")],
        ),
        (
            "apps/v1/replicasets",
            {**WORKLOAD, "replicas": -1},
            [("replicas", "Invalid value: -1: must be greater than or equal to 0")],
        ),
        (
            "batch/v1/jobs",
            {**JOB, "backoffLimitPerIndex": 1},
            [("backoffLimitPerIndex", "Invalid value: 1: requires indexed completion mode")],
        ),
        (
            "batch/v1/jobs",
            {
                **JOB,
                "podFailurePolicy": {
                    "rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [0, 0]}}]
                },
            },
            [
                (
                    "podFailurePolicy.rules[0].action",
                    'Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
                ),
                *(
                    (
                        f"podFailurePolicy.rules[0].onExitCodes.values[{index}]",
                        "Invalid value: 0: must not be 0 for the In operator",
                    )
                    for index in (0, 1)
                ),
                ("podFailurePolicy.rules[0].onExitCodes.values[1]", "Duplicate value: 0"),
            ],
        ),
        (
            "batch/v1/jobs",
            {**JOB, "managedBy": "x"},
            [("managedBy", 'Invalid value: "x": must be a domain-prefixed path (such as "acme.io/foo")')],
        ),
        (
            "batch/v1/cronjobs",
            {"schedule": "TZ=UTC * * * * *", "timeZone": "Nowhere/X", "jobTemplate": {"spec": JOB}},
            [
                (
                    "schedule",
                    'Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field '
                    "instead",
                ),
                ("timeZone", 'Invalid value: "Nowhere/X": unknown time zone Nowhere/X'),
            ],
        ),
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
def test_creations(path: str, spec: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert refusal(path, {"spec": spec}) == [(f"spec.{field}", message) for field, message in causes]


@pytest.mark.parametrize(
    ("path", "before", "after", "causes"),
    [
        (
            "apps/v1/deployments",
            {"spec": WORKLOAD},
            {
                "spec": {
                    **WORKLOAD,
                    "selector": {"matchLabels": {"a": "c"}},
                    "template": {**TEMPLATE, "metadata": {"labels": {"a": "c"}}},
                }
            },
            [("spec.selector", 'Invalid value: {"matchLabels":{"a":"c"}}: field is immutable')],
        ),
        ("apps/v1/statefulsets", {"spec": WORKLOAD}, {"spec": {**WORKLOAD, "replicas": 2}}, []),
        (
            "apps/v1/statefulsets",
            {"spec": WORKLOAD},
            {"spec": {**WORKLOAD, "serviceName": "x"}},
            [("spec", NO_CHANGE_OF_SET)],
        ),
        (
            "apps/v1/replicasets",
            {"spec": WORKLOAD},
            {"spec": {**WORKLOAD, "replicas": -1}},
            [("spec.replicas", "Invalid value: -1: must be greater than or equal to 0")] * 2,
        ),
        (
            "/v1/persistentvolumeclaims",
            {"spec": CLAIM},
            {"spec": {**CLAIM, "accessModes": ["ReadWriteMany"]}},
            [
                (
                    "spec",
                    NO_CHANGE_OF_CLAIM + '@@ -1,6 +1,6 @@\n {\n  "AccessModes": [\n-  "ReadWriteOnce"\n'
                    '+  "ReadWriteMany"\n  ],\n  "Selector": null,\n  "Resources": {\n',
                )
            ],
        ),
        (
            "apps/v1/controllerrevisions",
            {"revision": 1, "data": {"a": 1}},
            {"revision": 1, "data": {"a": 2}},
            [("data", 'Invalid value: {"a":2}: field is immutable')],
        ),
        (
            "/v1/nodes",
            {"spec": {"podCIDR": "10.0.0.0/24"}},
            {"spec": {"podCIDR": "10.0.1.0/24"}},
            [("spec.podCIDRs", 'Forbidden: node updates may not change podCIDR except from "" to valid')],
        ),
        ("/v1/nodes", {"spec": {}}, {"spec": {"podCIDR": "10.0.1.0/24"}}, []),
    ],
)
def test_updates(path: str, before: dict[str, Any], after: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert refusal(path, before, after) == causes


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ({"A": 1}, {"A": 1}, ""),
        ({"A": 1}, {"A": 2}, '@@ -1,3 +1,3 @@\n {\n- "A": 1\n+ "A": 2\n }\n'),
        (None, {"A": "<"}, '@@ -1 +1,3 @@\n-null\n+{\n+ "A": "\\u003c"\n+}\n'),
    ],
)
def test_differences(old: Any, new: Any, text: str) -> None:
    assert difference(old, new) == text
