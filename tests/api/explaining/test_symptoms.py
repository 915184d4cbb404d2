"""Symptoms in statuses, the objects that others depend on, and the commits that annotations name."""

from __future__ import annotations

from typing import Any

import pytest

from kubechronicle.api.explaining.states import Symptom, commit_of, dependencies, symptoms

SHA = "8b1a9953c4611296a827abf8c47804d7f0a1b2c3"
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes"}
FULL = {"type": "DiskPressure", "status": "True"}
DIED = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "startedAt": "2026-11-29T18:00:00Z"}}


def pod(**status: Any) -> Any:
    return {"kind": "Pod", "metadata": {"name": "web"}, "spec": {}, "status": status}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod(phase="Running", containerStatuses=[{"name": "web", "ready": True, "restartCount": 0}]), []),
        (pod(containerStatuses=[{"name": "web", "state": {"waiting": {"reason": "ContainerCreating"}}}]), []),
        (
            pod(
                containerStatuses=[
                    {
                        "name": "web",
                        "restartCount": 2,
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": DIED,
                    }
                ]
            ),
            ["container web: CrashLoopBackOff, exit code 137 (OOMKilled), 2 restarts"],
        ),
        (
            pod(
                phase="Pending",
                conditions=[
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes"}
                ],
            ),
            ["PodScheduled is False (Unschedulable: no nodes)"],
        ),
        (
            {"kind": "Deployment", "metadata": {}, "spec": {"replicas": 0}, "status": {}},
            ["it has no replicas: spec.replicas is 0"],
        ),
        (
            {
                "kind": "Deployment",
                "metadata": {},
                "spec": {"replicas": 3},
                "status": {"replicas": 3, "readyReplicas": 1},
            },
            ["1 of 3 replicas are ready"],
        ),
        (
            {"kind": "Widget", "metadata": {"deletionTimestamp": "2026-11-29T18:00:00Z", "finalizers": ["a/b"]}},
            ["it is being deleted, held by the finalizers a/b"],
        ),
        (
            {"kind": "Node", "metadata": {}, "status": {"conditions": [FULL]}},
            ["DiskPressure is True"],
        ),
    ],
)
def test_a_status_tells_what_is_wrong(found: Any, expected: list[str]) -> None:
    assert [each.text for each in symptoms(found)] == expected


def test_a_crash_began_with_the_last_container() -> None:
    found = pod(containerStatuses=[{"name": "web", "restartCount": 2, "lastState": DIED}])
    assert symptoms(found) == [Symptom("container web: exit code 137 (OOMKilled), 2 restarts", "2026-11-29T18:00:00Z")]


def test_a_workload_depends_on_what_its_template_names() -> None:
    container = {"name": "web", "envFrom": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "key"}}]}
    template = {"spec": {"containers": [container], "serviceAccountName": "web", "priorityClassName": "high"}}
    for found in (
        {"kind": "Deployment", "spec": {"template": template}},
        {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": template}}}},
        {"kind": "Pod", "metadata": {"name": "web"}, **template},
    ):
        assert {(each.resource, each.name) for each in dependencies(found)} == {
            ("configmaps", "settings"),
            ("secrets", "key"),
            ("serviceaccounts", "web"),
            ("priorityclasses.scheduling.k8s.io", "high"),
        }


@pytest.mark.parametrize(
    ("annotations", "commit"),
    [
        ({"app.example.com/git-commit": "3f2a1bc"}, "3f2a1bc"),
        (
            {"example.com/revision": "main@sha1:8b1a9953c4611296a827abf8c47804d7f0a1b2c3"},
            "8b1a9953c4611296a827abf8c47804d7f0a1b2c3",
        ),
        ({"deployment.kubernetes.io/revision": "3"}, ""),
        ({"checksum/config": SHA}, ""),
    ],
)
def test_annotations_name_the_commit(annotations: dict[str, str], commit: str) -> None:
    assert commit_of({"metadata": {"annotations": annotations}})[0] == commit
