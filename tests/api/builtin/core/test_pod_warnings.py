"""Warnings about pods and pod templates."""

from __future__ import annotations

import random
from typing import Any

import pytest
from writing_warnings import (
    CONTAINER,
    NULL_SELECTOR,
    OLD_LABEL,
    POD,
    TEMPLATE,
    WORKLOAD,
    container,
    files,
    volume,
    warnings,
)

from kubechronicle.api.builtin.core.pod.warnings import spec_warnings
from kubechronicle.api.builtin.core.pod.warnings_volumes import volume_warnings


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (POD, []),
        (
            {**POD, "nodeSelector": {"beta.kubernetes.io/os": "x", "b": "c"}},
            [f"nodeSelector[beta.kubernetes.io/os]: {OLD_LABEL}"],
        ),
        (
            {
                **POD,
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}]}
                            ]
                        },
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 1,
                                "preference": {
                                    "matchExpressions": [
                                        {"key": "node-role.kubernetes.io/master", "operator": "Exists"}
                                    ]
                                },
                            }
                        ],
                    },
                    "podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}],
                    },
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 1, "podAffinityTerm": {"topologyKey": "z"}}
                        ],
                    },
                },
            },
            [
                "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
                f".matchExpressions[0].key: beta.kubernetes.io/os is {OLD_LABEL}",
                "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference"
                ".matchExpressions[0].key: node-role.kubernetes.io/master is "
                'use "node-role.kubernetes.io/control-plane" instead',
                "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
                f".labelSelector: {NULL_SELECTOR}",
                "affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm"
                f".labelSelector: {NULL_SELECTOR}",
            ],
        ),
        (
            {
                **POD,
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "topologyKey": "beta.kubernetes.io/os"}
                ],
            },
            [
                f"topologySpreadConstraints[0].topologyKey: beta.kubernetes.io/os is {OLD_LABEL}",
                f"topologySpreadConstraints[0].labelSelector: {NULL_SELECTOR}",
            ],
        ),
        (
            volume(glusterfs={"endpoints": "e", "path": "p"}),
            ["volumes[0].glusterfs: deprecated in v1.25, non-functional in v1.26+"],
        ),
        (
            volume(gitRepo={"repository": "r"}),
            ["volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+"],
        ),
        (
            volume(storageos={"volumeName": "v"}),
            ["volumes[0].storageOS: deprecated in v1.22, non-functional in v1.25+"],
        ),
        (
            {**POD, "hostAliases": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}]},
            ['hostAliases[1].ip: duplicate ip "10.0.0.1"'],
        ),
        (
            {**POD, "imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}]},
            [
                'imagePullSecrets[1].name: duplicate name "a"',
                'imagePullSecrets[2].name: invalid empty name ""',
            ],
        ),
        (
            container(resources={"limits": {"memory": "1.5", "cpu": "1.5"}, "requests": {"memory": "500m"}}),
            [
                'containers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer',
                'containers[0].resources.requests[memory]: fractional byte value "500m" is invalid, must be an integer',
            ],
        ),
        (
            container(env=[{"name": "A"}, {"name": "A", "value": "$(A):x"}, {"name": "A", "value": "y"}]),
            ['containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply'],
        ),
        (
            container(
                ports=[
                    {"containerPort": 80, "hostPort": 80},
                    {"containerPort": 80},
                    {"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"},
                    {"containerPort": 81, "hostIP": "10.0.0.1"},
                ]
            ),
            [
                "containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
                "containers[0].ports[2]: dangerously ambiguous port definition with spec.containers[0].ports[0]",
                "containers[0].ports[2]: overlapping port definition with spec.containers[0].ports[1]",
                "containers[0].ports[3]: hostIP set without hostPort: "
                "{Name: HostPort:0 ContainerPort:81 Protocol:TCP HostIP:10.0.0.1}",
            ],
        ),
        (
            {
                "containers": [
                    {**CONTAINER, "ports": [{"name": "p", "containerPort": 80}]},
                    {**CONTAINER, "name": "d", "ports": [{"name": "p", "containerPort": 80, "protocol": "UDP"}]},
                ]
            },
            [
                'containers[1].ports[0]: duplicate port name "p" with spec.containers[0].ports[0], services and probes '
                "that select ports by name will use spec.containers[0].ports[0]"
            ],
        ),
        (
            {**POD, "hostAliases": [{"ip": "2001:DB8::1"}]},
            [
                'hostAliases[0].ip: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")',
            ],
        ),
    ],
)
def test_pod_specs(spec: dict[str, Any], expected: list[str]) -> None:
    assert warnings("/v1/pods", {"spec": spec}) == tuple(f"spec.{text}" for text in expected)
    assert warnings("apps/v1/deployments", {"spec": {**WORKLOAD, "template": {**TEMPLATE, "spec": spec}}}) == tuple(
        f"spec.template.spec.{text}".replace(" spec.", " spec.template.spec.") for text in expected
    )


def test_a_negative_grace_period_is_reported_in_templates_alone() -> None:
    """In a pod it is one second already when it is decoded."""
    spec = {**POD, "terminationGracePeriodSeconds": -1}
    assert warnings("/v1/pods", {"spec": spec}) == ()
    text = "must be >= 0; negative values are invalid and will be treated as 1"
    assert warnings("/v1/podtemplates", {"template": {"spec": spec}}) == (
        f"template.spec.terminationGracePeriodSeconds: {text}",
    )


def test_an_app_armor_annotation_without_its_field_is_reported() -> None:
    name = "container.apparmor.security.beta.kubernetes.io/c"
    body: dict[str, Any] = {"metadata": {"annotations": {name: "runtime/default"}}}
    assert warnings("/v1/pods", {**body, "spec": POD}) == (
        f'metadata.annotations[{name}]: deprecated since v1.30; use the "appArmorProfile" field instead',
    )
    profiled = container(securityContext={"appArmorProfile": {"type": "RuntimeDefault"}})
    assert warnings("/v1/pods", {**body, "spec": profiled}) == ()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            volume(configMap={"name": "m", "items": files("a", "a/b", "c")}),
            ['volume "v" (ConfigMap "m"): overlapping paths: "a/b" with "a"'],
        ),
        (
            volume(secret={"secretName": "s", "items": files("a", "a")}),
            ['volume "v" (Secret "s"): overlapping paths: "a" with "a"'],
        ),
        (
            volume(
                projected={
                    "sources": [
                        {"secret": {"name": "s", "items": files("a/b")}},
                        {"configMap": {"name": "m", "items": files("a")}},
                        {"serviceAccountToken": {"path": "a/b/c"}},
                    ]
                }
            ),
            [
                'volume "v" (Projected): overlapping paths: "a" (ConfigMap "m") with "a/b" (Secret "s")',
                'volume "v" (Projected): overlapping paths: "a/b/c" (ServiceAccountToken) with "a/b" (Secret "s")',
                'volume "v" (Projected): overlapping paths: "a/b/c" (ServiceAccountToken) with "a" (ConfigMap "m")',
            ],
        ),
    ],
)
def test_overlapping_files(spec: dict[str, Any], expected: list[str]) -> None:
    assert list(warnings("/v1/pods", {"spec": {**spec, "serviceAccountName": "s"}})) == expected


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        (
            {"scheduler.alpha.kubernetes.io/critical-pod": ""},
            [
                "scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; "
                'use the "priorityClassName" field instead'
            ],
        ),
        (
            {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"},
            [
                "seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; "
                'use the "seccompProfile" field instead'
            ],
        ),
        (
            {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"},
            [
                "container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; "
                'use the "appArmorProfile" field instead'
            ],
        ),
    ],
)
def test_template_annotations(annotations: dict[str, str], expected: list[str]) -> None:
    template = {**TEMPLATE, "metadata": {"labels": {"a": "b"}, "annotations": annotations}}
    assert warnings("apps/v1/daemonsets", {"spec": {**WORKLOAD, "template": template}}) == tuple(
        f"spec.template.metadata.annotations[{text}" for text in expected
    )


def overlap(one: str, other: str) -> bool:
    return bool(one and other) and (f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/"))


@pytest.mark.parametrize("seed", range(30))
def test_the_same_files_overlap_as_in_a_comparison_of_all_pairs(seed: int) -> None:
    chance = random.Random(seed)
    names = ("a", "a/b", "a/b/c", "ab", "a//b", "b", "b/a", "/a", "c")
    paths = [chance.choice(names) for _ in range(chance.randint(1, 9))]
    expected = dict.fromkeys(
        f'volume "v" (ConfigMap "m"): overlapping paths: "{paths[index]}" with "{other}"'
        for index in range(len(paths))
        for other in paths[:index]
        if overlap(paths[index], other)
    )
    found = volume_warnings([{"name": "v", "configMap": {"name": "m", "items": files(*paths)}}], "spec.volumes")
    assert found == list(expected)


@pytest.mark.parametrize("seed", range(30))
def test_the_same_ports_clash_as_in_a_comparison_of_all_pairs(seed: int) -> None:
    chance = random.Random(seed)
    ports = [
        {"containerPort": 80, "hostPort": chance.choice((0, 1, 2)), "hostIP": chance.choice(("", "a", "b"))}
        for _ in range(chance.randint(2, 9))
    ]
    expected = []
    for index, port in enumerate(ports):
        for position, other in enumerate(ports[:index]):
            if port == other:
                kind = "duplicate port definition"
            elif not (port["hostPort"] and other["hostPort"]):
                kind = "overlapping port definition"
            elif port["hostPort"] == other["hostPort"] and bool(port["hostIP"]) != bool(other["hostIP"]):
                kind = "dangerously ambiguous port definition"
            else:
                continue
            expected.append(f"spec.containers[0].ports[{index}]: {kind} with spec.containers[0].ports[{position}]")
    found = spec_warnings({}, container(ports=ports), "")
    assert [text for text in found if "definition" in text] == expected
