"""Autoscalers, StatefulSets, scales, and the rules of objects that refer to each other, as v1.37 has them."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import InProcess
from kinds.releases import open_release
from trio.testing import MockClock

SCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
SCALERS_V1 = SCALERS.replace("/v2/", "/v1/")
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MERGE = {"content-type": "application/merge-patch+json"}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "1"}},
}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def _scaler(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "h", "generation": 7}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **spec}}


def _set(**spec: Any) -> dict[str, Any]:
    common = {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
    return {"metadata": {"name": "s"}, "spec": {**common, **spec}}


async def _causes(server: InProcess, method: str, target: str, body: Any) -> list[tuple[str, str]]:
    headers = MERGE if method == "PATCH" else None
    answer = (await server.ask(method, target, body, headers=headers)).refused(422)
    return [(cause["field"], cause["reason"]) for cause in answer["details"]["causes"]]


async def test_scaling_to_zero_needs_a_metric_of_something_else(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        refused = [("spec.metrics", "FieldValueForbidden")]
        assert await _causes(server, "POST", SCALERS, _scaler(minReplicas=0)) == refused
        assert await _causes(server, "POST", SCALERS_V1, _scaler(minReplicas=0)) == refused
        made = await server.post(SCALERS, _scaler(minReplicas=0, metrics=[QUEUE]))
        assert made["spec"]["minReplicas"] == 0


async def test_the_generation_of_an_autoscaler_counts_changes_of_its_spec(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        assert (await server.post(SCALERS, _scaler()))["metadata"]["generation"] == 1
        changed = await server.patch(f"{SCALERS}/h", {"metadata": {"labels": {"a": "b"}}})
        assert changed["metadata"]["generation"] == 1
        assert (await server.patch(f"{SCALERS}/h", {"spec": {"maxReplicas": 4}}))["metadata"]["generation"] == 2
    async with open_release({"HPAGeneration": False}) as server:
        assert (await server.post(SCALERS, _scaler()))["metadata"]["generation"] == 7


@pytest.mark.parametrize("emulated", ["", "1.36"])
async def test_an_observed_generation_is_kept_whatever_the_gate(emulated: str, autojump_clock: MockClock) -> None:
    async with open_release({} if emulated else {"HPAGeneration": False}, emulated=emulated) as server:
        await server.post(SCALERS, _scaler())
        condition = {
            "type": "AbleToScale",
            "status": "True",
            "observedGeneration": 3,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"currentReplicas": 1, "desiredReplicas": 1, "conditions": [condition]}
        changed = await server.patch(f"{SCALERS}/h/status", {"status": status})
        assert changed["status"]["conditions"][0]["observedGeneration"] == 3
        assert "annotations" in (await server.get(f"{SCALERS_V1}/h"))["metadata"]


async def test_a_status_without_conditions_is_no_annotation_in_v1(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        await server.post(SCALERS, _scaler())
        await server.patch(f"{SCALERS}/h/status", {"status": {"observedGeneration": 1, "desiredReplicas": 1}})
        annotations = (await server.get(f"{SCALERS_V1}/h"))["metadata"].get("annotations") or {}
        assert "autoscaling.alpha.kubernetes.io/conditions" not in annotations


async def test_each_immutable_field_of_a_stateful_set_has_its_cause(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        made = await server.post(SETS, _set())
        assert made["spec"]["updateStrategy"]["rollingUpdate"] == {"partition": 0, "maxUnavailable": 1}
        change = {"spec": {"serviceName": "t", "podManagementPolicy": "Parallel"}}
        found = await _causes(server, "PATCH", f"{SETS}/s", change)
        assert sorted(found) == [
            ("spec.podManagementPolicy", "FieldValueInvalid"),
            ("spec.serviceName", "FieldValueInvalid"),
        ]
    async with open_release(emulated="1.34") as server:
        made = await server.post(SETS, _set())
        assert made["spec"]["updateStrategy"]["rollingUpdate"] == {"partition": 0}


async def test_the_provider_of_a_node_is_set_once(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        await server.post("/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"providerID": "a://1"}})
        for value, problem in (("a://2", "modified"), (None, "cleared")):
            change = {"spec": {"providerID": value}}
            answer = await server.ask("PATCH", "/api/v1/nodes/n", change, headers=MERGE)
            (cause,) = answer.refused(422)["details"]["causes"]
            assert (cause["field"], cause["reason"]) == ("spec.providerID", "FieldValueInvalid")
            assert cause["message"] == f"Invalid value: null: field cannot be {problem} once set"


async def test_the_role_of_a_binding_is_immutable(autojump_clock: MockClock) -> None:
    bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    async with open_release() as server:
        made = await server.post(bindings, {"metadata": {"name": "b"}, "roleRef": role, "subjects": []})
        answer = await server.ask("PUT", f"{bindings}/b", {**made, "roleRef": {**role, "name": "q"}})
        (cause,) = answer.refused(422)["details"]["causes"]
        assert cause["field"] == "roleRef"
        assert cause["message"].endswith(": field is immutable")


async def test_the_end_of_a_range_of_ports_is_shown_as_the_wrong_value(autojump_clock: MockClock) -> None:
    policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
    ports = [{"protocol": "TCP", "port": 80, "endPort": 70}]
    async with open_release() as server:
        body = {"metadata": {"name": "p"}, "spec": {"podSelector": {}, "ingress": [{"ports": ports}]}}
        (cause,) = (await server.ask("POST", policies, body)).refused(422)["details"]["causes"]
        assert cause["field"] == "spec.ingress[0].ports[0].endPort"
        assert cause["message"].startswith("Invalid value: 70:")


async def test_an_access_review_has_attributes_of_one_sort(autojump_clock: MockClock) -> None:
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    resource, path = {"verb": "get", "resource": "pods"}, {"verb": "get", "path": "/healthz"}
    async with open_release() as server:
        for spec in ({}, {"resourceAttributes": resource, "nonResourceAttributes": path}):
            answer = await server.ask("POST", reviews, {"spec": {"user": "joe", **spec}})
            (cause,) = answer.refused(422)["details"]["causes"]
            assert cause["field"] == "spec"
            value = "null" if not spec else '{"Path":"/healthz","Verb":"get"}'
            assert cause["message"].startswith(f"Invalid value: {value}: "), cause


async def test_the_metadata_of_a_scale_is_not_checked(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        body = {
            "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE},
        }
        await server.post(DEPLOYMENTS, body)
        scale = await server.get(f"{DEPLOYMENTS}/d/scale")
        scale["metadata"] |= {"labels": {"not a key": "no value!"}, "generateName": "Not A Name"}
        scale["spec"]["replicas"] = 5
        assert (await server.put(f"{DEPLOYMENTS}/d/scale", scale))["spec"]["replicas"] == 5
