"""Bindings: a pod gets its node once, with the scheduler's metadata, and no field manager."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import PODS, open_server, pod
from trio.testing import MockClock

BINDINGS = "/api/v1/namespaces/default/bindings"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"


def binding(name: str, node: str, **metadata: Any) -> Any:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


@pytest.mark.parametrize("path", [f"{PODS}/p/binding", BINDINGS])
async def test_a_pod_gets_its_node(autojump_clock: MockClock, path: str) -> None:
    async with open_server() as server:
        made = await server.post(PODS, pod("p", labels={"a": "1"}))
        answer = (await server.ask("POST", path, binding("p", "n1", annotations={"s": "x"}, labels={"zone": "z"}))).ok()
        assert answer == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        found = await server.get(f"{PODS}/p")
        assert found["spec"]["nodeName"] == "n1"
        assert found["metadata"]["annotations"] == {"s": "x"}
        assert found["metadata"]["labels"] == {"a": "1", "zone": "z"}
        (condition,) = found["status"]["conditions"]
        assert (condition["type"], condition["status"], condition["lastProbeTime"]) == ("PodScheduled", "True", None)
        # A binding is no update: neither managers nor the generation change.
        assert found["metadata"]["managedFields"] == made["metadata"]["managedFields"]
        assert found["metadata"]["generation"] == 1
        for node in ("n1", "n2"):
            refused = (await server.ask("POST", path, binding("p", node))).refused(409)
            assert refused["details"] == {"name": "p", "kind": "pods/binding"}
            assert refused["message"].endswith(': pod p is already assigned to node "n1"')


@pytest.mark.parametrize(("path", "resource"), [(f"{PODS}/p/binding", "pods/binding"), (BINDINGS, "bindings")])
async def test_policies_see_the_resource_of_the_url(autojump_clock: MockClock, path: str, resource: str) -> None:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["bindings", "pods/binding"],
    }
    seen = (
        "request.resource.resource + (has(request.subResource) ? '/' + request.subResource : '') + ' ' + request.name"
    )
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.target.name != 'n'", "messageExpression": seen}],
    }
    async with open_server() as server:
        await server.post(PODS, pod("p"))
        await server.post(f"{POLICIES}ies", {"metadata": {"name": "seen"}, "spec": policy})
        bound = {"policyName": "seen", "validationActions": ["Deny"]}
        await server.post(f"{POLICIES}ybindings", {"metadata": {"name": "seen"}, "spec": bound})
        refused = (await server.ask("POST", path, binding("p", "n"))).refused(422)
        assert refused["message"].endswith(f"denied request: {resource} p")
        (await server.ask("POST", path, binding("p", "m"))).ok()


async def test_invalid_bindings(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(PODS, pod("p"))
        path = f"{PODS}/p/binding"
        body = binding("p", "")
        assert (await server.ask("POST", path, body)).refused(500)["message"] == "target.name: Required value"
        body = binding("p", "r")
        body["target"]["kind"] = "Rack"
        why = (await server.ask("POST", path, body)).refused(500)["message"]
        assert why == 'target.kind: Unsupported value: "Rack": supported values: "Node", "<empty>"'
        (await server.ask("POST", path, binding("q", "n"))).refused(400)
        missing = (await server.ask("POST", f"{PODS}/ghost/binding", binding("ghost", "n"))).refused(404)
        assert missing["message"] == 'pods "ghost" not found'
        nowhere = "/api/v1/namespaces/nowhere/pods/p/binding"
        assert (await server.ask("POST", nowhere, binding("p", "n"))).refused(404)["message"].startswith("namespaces")
        for method in ("GET", "PUT"):
            (await server.ask(method, path, None if method == "GET" else body)).refused(405)
        (await server.ask("GET", BINDINGS)).refused(405)


async def test_a_pod_that_is_not_to_be_bound(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        gated = pod("gated")
        gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        await server.post(PODS, gated)
        why = (await server.ask("POST", f"{PODS}/gated/binding", binding("gated", "n"))).refused(409)["message"]
        assert why.endswith("pod gated has non-empty .spec.schedulingGates")
        await server.post(PODS, pod("ending", finalizers=["example.com/f"]))
        await server.delete(f"{PODS}/ending")
        why = (await server.ask("POST", f"{PODS}/ending/binding", binding("ending", "n"))).refused(409)["message"]
        assert why.endswith("pod ending is being deleted, cannot be assigned to a host")


async def test_preconditions_and_dry_runs(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        made = await server.post(PODS, pod("p"))
        path = f"{PODS}/p/binding"
        refused = (await server.ask("POST", path, binding("p", "n", uid="other"))).refused(409)
        assert "Precondition failed: UID in precondition: other" in refused["message"]
        (await server.ask("POST", path, binding("p", "n", resourceVersion="1"))).refused(409)
        (await server.ask("POST", f"{path}?dryRun=All", binding("p", "n"))).ok()
        assert "nodeName" not in (await server.get(f"{PODS}/p"))["spec"]
        exact = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
        (await server.ask("POST", path, binding("p", "n", **exact))).ok()


async def test_a_binding_must_name_a_pod(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for name, why in (("", "Name parameter required."), ("a%b", 'Name parameter invalid: "a%b"')):
            assert (await server.ask("POST", BINDINGS, binding(name, "n"))).refused(400)["message"].startswith(why)
