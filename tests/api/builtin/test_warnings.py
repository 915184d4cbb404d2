"""Warnings about kinds other than Pod, and the updates that get them."""

from __future__ import annotations

from typing import Any

import pytest
from writing_warnings import CLAIM, CONTAINER, JOB, LABEL_WANTED, OLD_CLASS, POD, TEMPLATE, VOLUME, WORKLOAD, warnings

from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.pipeline import deletion
from kubechronicle.api.registry.registry import builtin_registry


@pytest.mark.parametrize(
    ("path", "spec", "used"),
    [
        ("/v1/pods", POD, "this is used in the Pod's hostname"),
        ("apps/v1/deployments", WORKLOAD, "this is used in Pod names and hostnames"),
        ("batch/v1/jobs", JOB, "this is used in Pod names and hostnames"),
        (
            "batch/v1/cronjobs",
            {"schedule": "@daily", "jobTemplate": {"spec": JOB}},
            "this is used in Pod names and hostnames",
        ),
    ],
)
def test_names_that_become_host_names(path: str, spec: dict[str, Any], used: str) -> None:
    assert warnings(path, {"metadata": {"name": "a.b"}, "spec": spec}) == (f"metadata.name: {used}, {LABEL_WANTED}",)


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (
            "apps/v1/statefulsets",
            {
                "spec": {
                    **WORKLOAD,
                    "revisionHistoryLimit": -1,
                    "volumeClaimTemplates": [
                        {"metadata": {"name": "v"}, "spec": {**CLAIM, "resources": {"requests": {"storage": "1.5"}}}}
                    ],
                }
            },
            [
                "spec.volumeClaimTemplates[0].resources.requests[storage]: "
                'fractional byte value "1500m" is invalid, must be an integer',
                "spec.revisionHistoryLimit: a negative value retains all historical revisions; "
                "a value >= 0 is recommended",
            ],
        ),
        (
            "batch/v1/jobs",
            {"spec": {**JOB, "completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001}},
            [
                "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than "
                "10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
            ],
        ),
        (
            "/v1/podtemplates",
            {"template": {**TEMPLATE, "spec": {**POD, "terminationGracePeriodSeconds": -1}}},
            [
                "template.spec.terminationGracePeriodSeconds: must be >= 0; "
                "negative values are invalid and will be treated as 1"
            ],
        ),
        (
            "/v1/persistentvolumes",
            {
                "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "c"}},
                "spec": {**VOLUME, "hostPath": {"path": "/x"}, "persistentVolumeReclaimPolicy": "Recycle"},
            },
            [
                f"metadata.annotations[volume.beta.kubernetes.io/storage-class]: {OLD_CLASS}",
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
                "Instead, the recommended approach is to use dynamic provisioning.",
            ],
        ),
        (
            "/v1/persistentvolumeclaims",
            {"spec": {**CLAIM, "resources": {"requests": {"storage": "1.5"}}}},
            ['spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer'],
        ),
        (
            "/v1/nodes",
            {"spec": {"externalID": "x"}},
            ["spec.externalID: this field is deprecated, and is unused by Kubernetes"],
        ),
        (
            "/v1/serviceaccounts",
            {"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}},
            [
                "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; "
                "prefer separate namespaces to isolate access to mounted secrets"
            ],
        ),
        (
            "/v1/endpoints",
            {"subsets": [{"addresses": [{"ip": "2001:DB8::1"}], "ports": [{"port": 1}]}]},
            [
                'subsets[0].addresses[0].ip: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format '
                '("2001:db8::1")'
            ],
        ),
        (
            "/v1/services",
            {"spec": {"type": "ExternalName", "externalName": "a.example.com", "externalIPs": ["10.0.0.1"]}},
            ['spec.externalIPs is ignored when spec.type is "ExternalName"'],
        ),
        (
            "/v1/services",
            {
                "metadata": {"annotations": {"service.kubernetes.io/topology-aware-hints": "auto"}},
                "spec": {
                    "ports": [{"port": 80}],
                    "clusterIP": "None",
                    "clusterIPs": ["None"],
                    "sessionAffinity": "ClientIP",
                },
            },
            [
                "annotation service.kubernetes.io/topology-aware-hints is deprecated, "
                "please use service.kubernetes.io/topology-mode instead",
                "spec.SessionAffinity is ignored for headless services",
            ],
        ),
        (
            "/v1/services",
            {"spec": {"ports": [{"port": 80}], "trafficDistribution": "PreferClose"}},
            ['spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'],
        ),
        (
            "/v1/secrets",
            {"type": "kubernetes.io/tls", "data": {"tls.crt": "", "tls.key": ""}},
            ["tls: failed to find any PEM data in certificate input"],
        ),
    ],
)
def test_other_kinds(path: str, body: dict[str, Any], expected: list[str]) -> None:
    assert list(warnings(path, body)) == expected


BAD_POD = {**POD, "terminationGracePeriodSeconds": -1}
BAD_WORKLOAD = {**WORKLOAD, "template": {**TEMPLATE, "spec": BAD_POD}}


def test_update_gets_warnings_if_the_generation_changes() -> None:
    path = "apps/v1/deployments"
    assert warnings(path, {"spec": BAD_WORKLOAD}, {"metadata": {"labels": {"a": "b"}}, "spec": BAD_WORKLOAD}) == ()
    expected = warnings(path, {"spec": BAD_WORKLOAD}, {"spec": {**BAD_WORKLOAD, "replicas": 3}})
    assert [text.partition(":")[0] for text in expected] == ["spec.template.spec.terminationGracePeriodSeconds"]


def test_pod_update_gets_no_warnings() -> None:
    image = {**BAD_POD, "containers": [{**CONTAINER, "image": "j"}]}
    assert warnings("/v1/pods", {"spec": BAD_POD}, {"spec": image}) == ()


def test_addresses_in_a_pod_status() -> None:
    status = {"podIP": "2001:DB8::1", "podIPs": [{"ip": "2001:DB8::1"}]}
    expected = warnings("/v1/pods", {"spec": POD}, {"spec": POD, "status": status}, "status")
    assert [text.partition(":")[0] for text in expected] == ["status.podIPs[0].ip"]


@pytest.mark.parametrize(
    ("resource", "options", "count"),
    [
        ("jobs.batch", DeleteOptions(), 1),
        ("jobs.batch", DeleteOptions(propagation_policy="Orphan"), 0),
        ("jobs.batch", DeleteOptions(orphan_dependents=False), 0),
        ("replicationcontrollers", DeleteOptions(), 0),
    ],
)
def test_deletion_without_propagation_policy(resource: str, options: DeleteOptions, count: int) -> None:
    assert len(deletion.warnings(resource, options)) == count


def test_deprecated_kinds() -> None:
    expected = {rt.kind: rt.warning for rt in builtin_registry() if rt.warning}
    assert expected == {
        "ComponentStatus": "v1 ComponentStatus is deprecated in v1.19+",
        "Endpoints": "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    }
