"""Validation of the apps group."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import causes_of_change, rejection_causes

CONTAINER = {"name": "c", "image": "i"}


TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}


WORKLOAD: dict[str, Any] = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


IMMUTABLE_SET = (
    "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' "
    "are forbidden"
)


@pytest.mark.parametrize(
    ("path", "change", "field", "message"),
    [
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
    ],
)
def test_messages_of_creations(path: str, spec: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_causes(path, {"spec": spec}) == [(f"spec.{field}", message) for field, message in causes]


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
            [("spec", IMMUTABLE_SET)],
        ),
        (
            "apps/v1/replicasets",
            {"spec": WORKLOAD},
            {"spec": {**WORKLOAD, "replicas": -1}},
            [("spec.replicas", "Invalid value: -1: must be greater than or equal to 0")] * 2,
        ),
        (
            "apps/v1/controllerrevisions",
            {"revision": 1, "data": {"a": 1}},
            {"revision": 1, "data": {"a": 2}},
            [("data", 'Invalid value: {"a":2}: field is immutable')],
        ),
    ],
)
def test_messages_of_updates(
    path: str, before: dict[str, Any], after: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    assert rejection_causes(path, before, after) == causes
