"""The checks of metadata in a write: how often and when each kind's rules report a problem."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from pipeline_writes import create, update
from rejections import VALID, rejection_causes

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.pipeline import patches, pipeline
from kubechronicle.api.registry.registry import builtin_registry
from kubechronicle.api.strategy.strategy import WriteContext

BUDGETS = "policy/v1/poddisruptionbudgets"
OWNER = {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}]}}
NEW_EVENT = {
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "regarding": {"namespace": "n"},
    "type": "Normal",
    "reason": "r",
    "action": "a",
    "reportingController": "c",
    "reportingInstance": "i",
}


def test_metadata_without_checks_of_its_kind_is_checked_last() -> None:
    (found,) = rejection_causes(BUDGETS, OWNER)
    assert found[0] == "metadata.ownerReferences[0].uid"
    (found,) = rejection_causes(BUDGETS, {**OWNER, "spec": {"minAvailable": "150%"}})
    assert found[0] == "spec.minAvailable"


def test_new_events_report_their_names_by_their_own_rules() -> None:
    (found,) = rejection_causes("events.k8s.io/v1/events", {**NEW_EVENT, "metadata": {"name": ".."}})
    assert "RFC 1123 subdomain" in found[1]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (BUDGETS, VALID[BUDGETS]),
        ("/v1/events", {"involvedObject": {"namespace": "n"}}),
        ("events.k8s.io/v1/events", NEW_EVENT),
        ("storage.k8s.io/v1/csinodes", {"spec": {"drivers": []}}),
        ("admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {}),
        ("resource.k8s.io/v1/resourceclaimtemplates", {"spec": {}}),
        ("resource.k8s.io/v1/resourceclaims", {"spec": {}}),
        ("resource.k8s.io/v1/deviceclasses", {"spec": {}}),
        ("node.k8s.io/v1/runtimeclasses", {"handler": "h"}),
        ("storage.k8s.io/v1/volumeattributesclasses", {"driverName": "d.example.com", "parameters": {"a": "b"}}),
        ("storage.k8s.io/v1/storageclasses", {"provisioner": "example.com/p"}),
        ("/v1/services", {"spec": {"ports": [{"port": 80}]}}),
        ("/v1/endpoints", {}),
        ("/v1/namespaces", {}),
        ("/v1/limitranges", {}),
        ("/v1/nodes", {}),
        ("discovery.k8s.io/v1/endpointslices", {"addressType": "IPv4", "endpoints": []}),
        ("networking.k8s.io/v1/networkpolicies", {"spec": {"podSelector": {}}}),
        ("rbac.authorization.k8s.io/v1/roles", {"rules": []}),
        ("scheduling.k8s.io/v1/priorityclasses", {"value": 1}),
    ],
)
def test_a_problem_of_metadata_that_several_checks_find_is_one_cause(path: str, body: dict[str, Any]) -> None:
    causes = rejection_causes(path, body, {**body, **OWNER})
    assert [field for field, _ in causes] == ["metadata.ownerReferences[0].uid"]


def test_an_immutable_part_does_not_hide_what_kubernetes_finds_in_it_by_code_too() -> None:
    attachment = {"spec": {"attacher": "a.example.com", "nodeName": "n", "source": {"persistentVolumeName": "p"}}}
    wrong = {"spec": {**attachment["spec"], "attacher": ""}}
    fields = [field for field, _ in rejection_causes("storage.k8s.io/v1/volumeattachments", attachment, wrong)]
    assert sorted(fields) == ["spec", "spec.attacher"]
    slices = "discovery.k8s.io/v1/endpointslices"
    causes = rejection_causes(slices, {"addressType": "IPv4", "endpoints": []}, {"addressType": "x", "endpoints": []})
    assert sorted(field for field, _ in causes) == ["addressType", "addressType"]
    claims, request = "resource.k8s.io/v1/resourceclaims", {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    causes = rejection_causes(claims, *({"spec": {"devices": {"requests": [request] * times}}} for times in (1, 2)))
    assert [field for field, _ in causes] == ["spec"]


@pytest.mark.parametrize(
    ("path", "body", "owned"),
    [
        ("storage.k8s.io/v1/csidrivers", {"spec": {}}, ("f:spec", "f:preventPodSchedulingIfMissing")),
        (
            "resource.k8s.io/v1/devicetaintrules",
            {"spec": {"taint": {"key": "example.com/a", "effect": "None"}}},
            ("f:spec", "f:taint", "f:timeAdded"),
        ),
    ],
)
def test_the_writer_owns_defaults_that_depend_on_gates_and_the_time(
    path: str, body: dict[str, Any], owned: tuple[str, ...]
) -> None:
    fields = create(path, body, name="a")["metadata"]["managedFields"][0]["fieldsV1"]
    for name in owned:
        fields = fields[name]
    assert fields == {}


def test_owners_stay_when_a_list_has_items_without_keys() -> None:
    path = "/v1/serviceaccounts"
    held = create(path, {"automountServiceAccountToken": False}, name="a")
    owners = held["metadata"]["managedFields"]
    assert update(path, held, {"secrets": [{}]}).object["metadata"]["managedFields"] == owners


def test_a_put_that_creates_marks_no_deletion() -> None:
    marks = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3}
    rt = builtin_registry().lookup("coordination.k8s.io", "v1", "leases")
    assert rt is not None
    ctx = WriteContext(now="2026-01-01T00:00:00Z", name="a", namespace="n", uid="u", manager="m")
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "a", "namespace": "n", **marks},
    }
    obj, _ = pipeline.decode_object(rt, body, ctx, create=False)
    meta = pipeline.prepare_create(rt, obj, ctx).object["metadata"]
    assert not meta.keys() & marks.keys()
    assert meta["managedFields"][0]["fieldsV1"]["f:metadata"].keys() == {f"f:{name}" for name in marks}


def test_what_tags_find_comes_last() -> None:
    path = "rbac.authorization.k8s.io/v1/roles"
    causes = rejection_causes(path, {"rules": []}, {"rules": [{"verbs": []}], **OWNER})
    assert causes[-1][0] == "rules[0].verbs"


def test_a_prefix_of_names_is_not_checked_where_the_name_is() -> None:
    (found,) = rejection_causes("resource.k8s.io/v1/deviceclasses", {"metadata": {"name": "", "generateName": "a.."}})
    assert found[0] == "metadata.name"


@pytest.mark.parametrize(
    ("path", "body"),
    [(BUDGETS, VALID[BUDGETS]), ("resource.k8s.io/v1/resourceclaims", {"spec": {}})],
)
def test_a_problem_of_the_metadata_of_a_status_is_one_cause(path: str, body: dict[str, Any]) -> None:
    wrong = {**body, "metadata": {"deletionGracePeriodSeconds": 5}}
    causes = rejection_causes(path, body, wrong, "status")
    assert [field for field, _ in causes] == ["metadata.deletionGracePeriodSeconds"]


def test_a_uid_in_a_patch_is_a_constant_field_beside_others() -> None:
    rt = builtin_registry().lookup("storage.k8s.io", "v1", "csidrivers")
    assert rt is not None
    ctx = WriteContext(now="2026-01-01T00:00:00Z", name="a", patches=True)
    old = create("storage.k8s.io/v1/csidrivers", {"spec": {}}, name="a")
    old["metadata"]["resourceVersion"] = "7"
    causes = []
    for revision in ("7", None):
        patch = {"metadata": {"uid": "x", "resourceVersion": revision}, "spec": {"fsGroupPolicy": "x"}}
        body = json.dumps(patch).encode()
        new, _ = patches.apply_patch(rt, copy.deepcopy(old), "application/merge-patch+json", body, ctx)
        with pytest.raises(StatusError) as rejected:
            pipeline.prepare_update(rt, old, new, ctx)
        causes.append([cause["field"] for cause in (rejected.value.details or {})["causes"]])
    assert causes == [["metadata.uid", "spec.fsGroupPolicy"], ["metadata.resourceVersion"]]


@pytest.mark.parametrize("plural", ["roles", "clusterroles"])
def test_a_name_holds_no_nul(plural: str) -> None:
    with pytest.raises(StatusError) as caught:
        create(f"rbac.authorization.k8s.io/v1/{plural}", {"metadata": {"name": "a\0"}, "rules": []})
    assert caught.value.code == 422
    assert 'metadata.name: Invalid value: "a\\x00": must not contain the character NUL' in caught.value.message
