"""Defaults of explicit zero values."""

from __future__ import annotations

from typing import Any

import pytest
from rejections import rejection_reasons

from kubechronicle.api.builtin.kinds import DEFAULT_VALUES
from kubechronicle.api.kinds import reading
from kubechronicle.api.pipeline import conversion
from kubechronicle.api.schema import types

TARGET = {"apiGroup": "g.example.com", "kind": "K", "name": "n", "scope": ""}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("storage.k8s.io/v1/storageclasses", {"provisioner": "p", "volumeBindingMode": ""}, "volumeBindingMode"),
        ("scheduling.k8s.io/v1/priorityclasses", {"value": 1, "preemptionPolicy": ""}, "preemptionPolicy"),
        ("storage.k8s.io/v1/csidrivers", {"spec": {"fsGroupPolicy": ""}}, "spec.fsGroupPolicy"),
        (
            "networking.k8s.io/v1/ingressclasses",
            {"spec": {"controller": "a.b/c", "parameters": TARGET}},
            "spec.parameters.scope",
        ),
        (
            "discovery.k8s.io/v1/endpointslices",
            {"addressType": "IPv4", "endpoints": [], "ports": [{"name": "a", "protocol": ""}]},
            "ports[0].protocol",
        ),
    ],
)
def test_an_empty_string_in_an_optional_enumeration_is_rejected(path: str, body: dict[str, Any], field: str) -> None:
    reason = "Required" if field == "preemptionPolicy" else "NotSupported"
    assert rejection_reasons(path, body) == [(field, reason)]


def test_an_empty_string_in_a_plain_field_gets_the_default() -> None:
    secret = {"type": "", "metadata": {"name": "a"}}
    conversion.apply(secret, types.object_type("io.k8s.api.core.v1.Secret"))
    assert secret["type"] == "Opaque"


def test_no_table_repeats_a_default_that_a_type_declares() -> None:
    release = reading.release()
    for name, values in DEFAULT_VALUES.items():
        declared = types.defaults(release.declared(name).definition)
        assert not values.items() & declared.items(), name


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        ("ContainerPort", {"protocol": "TCP"}),
        ("AzureDiskVolumeSource", {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False}),
        ("LocalObjectReference", {}),
    ],
)
def test_declared_defaults(definition: str, expected: dict[str, Any]) -> None:
    assert _defaulted(definition, {}) == expected


def _defaulted(definition: str, obj: dict[str, Any]) -> dict[str, Any]:
    conversion.apply(obj, types.object_type(f"io.k8s.api.core.v1.{definition}"))
    return obj


@pytest.mark.parametrize(
    ("definition", "field"),
    [
        ("ResourceRequirements", "limits"),
        ("LimitRangeItem", "max"),
        ("NodeStatus", "capacity"),
        ("PersistentVolumeSpec", "capacity"),
        ("PersistentVolumeClaimStatus", "capacity"),
        ("ResourceQuotaSpec", "hard"),
        ("PodSpec", "overhead"),
    ],
)
def test_amounts_are_rounded_up_to_a_thousandth(definition: str, field: str) -> None:
    given = {"a": "1n", "b": "1000500u", "c": "-1u", "d": "1", "e": "1Gi", "f": "1e-9"}
    rounded = {"a": "1m", "b": "1001m", "c": "-1m", "d": "1", "e": "1Gi", "f": "1e-3"}
    assert _defaulted(definition, {field: given})[field] == rounded


def _pod(**spec: Any) -> dict[str, Any]:
    return _defaulted("Pod", {"metadata": {}, "spec": spec})["spec"]


def test_limits_of_huge_pages_of_a_pod_follow_from_its_containers() -> None:
    held = {"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}
    resources = _pod(containers=[held, held], resources={"limits": {"cpu": "1"}})["resources"]
    assert resources["limits"] == {"hugepages-2Mi": "8Mi", "cpu": "1"}
    assert resources["requests"] == {"hugepages-2Mi": "8Mi", "cpu": "1"}


def test_requests_of_a_pod_keep_the_unit_of_its_containers() -> None:
    containers = [{"resources": {"requests": {"memory": amount}}} for amount in ("1Gi", "1G")]
    resources = _pod(containers=containers, resources={"limits": {"memory": "9Gi"}})["resources"]
    assert resources["requests"] == {"memory": "2073741824"}
    resources = _pod(containers=containers[:1], resources={"limits": {"memory": "9Gi"}})["resources"]
    assert resources["requests"] == {"memory": "1Gi"}


def test_a_negative_grace_period_becomes_a_second_in_pods_alone() -> None:
    assert _pod(terminationGracePeriodSeconds=-5)["terminationGracePeriodSeconds"] == 1
    template = _defaulted("PodTemplateSpec", {"spec": {"terminationGracePeriodSeconds": -5}})
    assert template["spec"]["terminationGracePeriodSeconds"] == -5


@pytest.mark.parametrize("definition", ["Pod", "PodTemplateSpec"])
def test_annotations_of_init_containers_are_dropped(definition: str) -> None:
    old = {f"pod.{stage}.kubernetes.io/init-container{part}": "x" for stage in ("alpha", "beta") for part in ("s",)}
    metadata = {"annotations": {**old, "pod.beta.kubernetes.io/init-container-statuses": "x", "mine": "y"}}
    assert _defaulted(definition, {"metadata": metadata, "spec": {}})["metadata"] == {"annotations": {"mine": "y"}}
    assert _defaulted(definition, {"metadata": {"annotations": old}, "spec": {}})["metadata"] == {}
