"""Rules of storage.k8s.io."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_writes import create, rejections_of, update
from rejections import rejection_reasons

from kubechronicle.api.builtin.kinds import KindRules
from kubechronicle.api.features.gates import FeatureGates, effective_version
from kubechronicle.api.values.objects import Object

CLASS = {"provisioner": "a.example.com"}


@pytest.mark.parametrize(
    ("path", "body", "causes"),
    [
        ("storage.k8s.io/v1/storageclasses", {"provisioner": ""}, [("provisioner", "Required")]),
    ],
)
def test_rejected_creations(path: str, body: dict[str, Any], causes: list[tuple[str, str]]) -> None:
    assert rejection_reasons(path, body) == causes


@pytest.mark.parametrize(
    ("path", "before", "after", "causes"),
    [
        ("storage.k8s.io/v1/storageclasses", CLASS, {"provisioner": "b.example.com"}, [("provisioner", "Invalid")]),
    ],
)
def test_allowed_and_rejected_updates(
    path: str, before: dict[str, Any], after: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    assert rejection_reasons(path, before, after) == causes


def test_csi_nodes() -> None:
    path = "storage.k8s.io/v1/csinodes"
    driver = {"name": "d.example.com", "nodeID": "n", "topologyKeys": ["zone", "zone"]}
    assert rejections_of(path, {"spec": {"drivers": [driver]}}) == ['spec.drivers[0]: Duplicate value: "zone"']
    driver = {"name": "d.example.com", "nodeID": "n", "topologyKeys": [], "allocatable": {"count": 5}}
    stored = create(path, {"spec": {"drivers": [driver]}})
    grown = update(path, stored, {"spec": {"drivers": [{**driver, "allocatable": {"count": 9}}]}})
    assert grown.object["spec"]["drivers"][0]["allocatable"] == {"count": 9}
    moved = [{"name": "d.example.com", "nodeID": "m"}, {"name": "d.example.com", "nodeID": "n"}]
    assert [
        cause.partition(":")[0]
        for cause in rejections_of(path, {"spec": {"drivers": [driver]}}, {"spec": {"drivers": moved}})
    ] == [
        "spec.drivers[1].name",
        "spec.drivers",
    ]


def test_csi_drivers() -> None:
    path = "storage.k8s.io/v1/csidrivers"
    token = {"audience": "a", "expirationSeconds": 599}
    spec = {"tokenRequests": [token, token], "volumeLifecycleModes": ["Sometimes"]}
    assert rejections_of(path, {"spec": spec}) == [
        "spec.tokenRequests[0].expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
        'spec.tokenRequests[1].audience: Duplicate value: "a"',
        'spec.volumeLifecycleModes: Unsupported value: "Sometimes": supported values: "Persistent", "Ephemeral"',
    ]
    (found,) = rejections_of(path, {"spec": {"serviceAccountTokenInSecrets": True}})
    assert found.startswith("spec.serviceAccountTokenInSecrets: Invalid value: true")
    assert create(path, {"spec": {}})["spec"]["preventPodSchedulingIfMissing"] is False


def test_volume_attachments() -> None:
    path = "storage.k8s.io/v1/volumeattachments"
    body = {"spec": {"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}
    assert rejections_of(path, body, {"spec": {"nodeName": "m"}}) == ["spec: Invalid value: null: field is immutable"]
    long = {"attached": False, "attachError": {"message": "x" * 1025}}
    assert rejections_of(path, body, {"status": long}, below="status") == [
        "status.attachError.message: Too long: may not be more than 262144 bytes"
    ]
    stored = create(path, body)
    attached = {"status": {"attached": True}, "metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "m"}}
    after = update(path, stored, attached, "status").object
    assert after["status"] == {"attached": True}
    assert after["spec"] == stored["spec"]
    assert "labels" not in after["metadata"]


def test_fields_of_inline_volumes() -> None:
    inline = {"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/"}, "cephfs": {"monitors": ["m"]}}
    policies = {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}
    spec = {"attacher": "d.example.com", "nodeName": "n", "source": {"inlineVolumeSpec": {**inline, **policies}}}
    found = rejections_of("storage.k8s.io/v1/volumeattachments", {"spec": spec})
    assert [each.partition(": ")[0].removeprefix("spec.source.inlineVolumeSpec.") for each in found] == [
        "capacity",
        "csi",
        "accessModes",
        "cephFS",
    ]
    beside = {
        "source": {"inlineVolumeSpec": {"csi": {}, "flexVolume": {"driver": "d"}, "accessModes": ["ReadWriteOnce"]}}
    }
    found = rejections_of("storage.k8s.io/v1/volumeattachments", {"spec": {**spec, **beside}})
    assert not any("flexVolume" in each for each in found)


def test_a_driver_says_where_it_gets_tokens() -> None:
    path, requests = "storage.k8s.io/v1/csidrivers", {"tokenRequests": [{"audience": "a"}]}
    stored = create(path, {"spec": {}})
    (warning,) = update(path, stored, {"spec": requests}).warnings
    assert warning.startswith("spec.serviceAccountTokenInSecrets is unset")
    assert update(path, stored, {"spec": {**requests, "serviceAccountTokenInSecrets": False}}).warnings == []
    unchanged = create(path, {"spec": requests})
    assert update(path, unchanged, {"spec": {"requiresRepublish": True}}).warnings == []


def test_an_inline_volume_gets_no_defaults_of_persistent_volumes() -> None:
    inline = {"accessModes": ["ReadWriteOnce"], "csi": {"driver": "d.e", "volumeHandle": "h"}}
    spec = {"attacher": "a.b", "nodeName": "n", "source": {"inlineVolumeSpec": inline}}
    assert create("storage.k8s.io/v1/volumeattachments", {"spec": spec})["spec"]["source"]["inlineVolumeSpec"] == inline
    volume = create("/v1/persistentvolumes", {"spec": {**inline, "capacity": {"storage": "1Gi"}}})["spec"]
    assert (volume["persistentVolumeReclaimPolicy"], volume["volumeMode"]) == ("Retain", "Filesystem")


def test_equal_topologies_and_ones_without_terms() -> None:
    term = {"matchLabelExpressions": [{"key": "k", "values": ["a", "b"]}]}
    same = {"matchLabelExpressions": [{"key": "k", "values": ["b", "a"]}]}
    path, body = "storage.k8s.io/v1/storageclasses", {"provisioner": "p"}
    found = rejections_of(path, {**body, "allowedTopologies": [term, same, term]})
    assert [cause.partition(".")[0] for cause in found] == [f"allowedTopologies[{index}]" for index in (1, 2)]
    found = rejections_of(path, {**body, "allowedTopologies": [{}]})
    assert found == ['allowedTopologies[0].matchLabelExpressions: Duplicate value: ""']


def test_the_allocatable_count_of_a_driver_is_mutable_by_a_gate() -> None:
    def node(count: int) -> Object:
        return {"spec": {"drivers": [{"name": "d", "nodeID": "n", "allocatable": {"count": count}}]}}

    older = KindRules(FeatureGates(effective_version(["1.33"], [])))
    assert KindRules(FeatureGates()).of("csinodes.storage.k8s.io").validate_update(node(2), node(1)) == []
    (cause,) = older.of("csinodes.storage.k8s.io").validate_update(node(2), node(1))
    shown = '{"Name":"d","NodeID":"n","TopologyKeys":null,"Allocatable":{"Count":2}}'
    assert cause.message.endswith(f": {shown}: field is immutable")
