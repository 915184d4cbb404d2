"""Pods as v1.37 completes, checks and binds them."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import InProcess, pod
from kinds.releases import open_release
from trio.testing import MockClock

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MERGE = {"content-type": "application/merge-patch+json"}
CONTAINER = {"name": "main", "image": "busybox"}


def _pod(**spec: Any) -> dict[str, Any]:
    made = pod("p")
    made["spec"] |= spec
    return made


async def _causes(server: InProcess, method: str, target: str, body: Any) -> list[tuple[str, str]]:
    headers = MERGE if method == "PATCH" else None
    answer = (await server.ask(method, target, body, headers=headers)).refused(422)
    return [(cause["field"], cause["message"]) for cause in answer["details"]["causes"]]


async def test_a_windows_pod_shares_no_processes(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        found = await _causes(server, "POST", PODS, _pod(os={"name": "windows"}, shareProcessNamespace=True))
        assert [field for field, _ in found] == ["spec.shareProcessNamespace"]


async def test_a_negative_grace_period_is_one_second_in_pods_alone(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        made = await server.post(PODS, _pod(terminationGracePeriodSeconds=-5))
        assert made["spec"]["terminationGracePeriodSeconds"] == 1
        template = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [CONTAINER], "terminationGracePeriodSeconds": -5},
        }
        body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
        answer = await server.ask("POST", DEPLOYMENTS, body)
        assert answer.ok()["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == -5
        (warning,) = answer.header_all("warning")
        assert "spec.template.spec.terminationGracePeriodSeconds: must be >= 0" in warning


async def test_limits_of_a_pod_follow_those_of_its_containers(autojump_clock: MockClock) -> None:
    container = {**CONTAINER, "resources": {"limits": {"memory": "128Mi"}}}
    async with open_release() as server:
        made = await server.post(PODS, _pod(containers=[container], resources={"limits": {"cpu": "1"}}))
        resources = made["spec"]["resources"]
        assert resources == {
            "limits": {"cpu": "1", "memory": "128Mi"},
            "requests": {"cpu": "1", "memory": "128Mi"},
        }
        for target in (f"{PODS}/p", f"{PODS}/p/resize"):
            body = await server.get(f"{PODS}/p")
            body["spec"].pop("resources")
            assert (await server.put(target, body))["spec"]["resources"] == resources


async def test_only_an_empty_list_clears_the_claims_in_a_status(autojump_clock: MockClock) -> None:
    gpu = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    claims = [{"name": "g", "resourceClaimTemplateName": "t"}]
    mapping = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "r"}
    status: dict[str, Any] = {
        "resourceClaimStatuses": [{"name": "g", "resourceClaimName": "g-1"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "ext", "requestMappings": [mapping]},
    }
    async with open_release() as server:
        made = await server.post(PODS, _pod(containers=[{**CONTAINER, "resources": gpu}], resourceClaims=claims))
        kept = await server.patch(f"{PODS}/p/status", {"status": status})
        bare = {**made, "metadata": {"name": "p"}, "status": {"phase": "Running"}}
        replaced = (await server.put(f"{PODS}/p/status", bare))["status"]
        nulls = (await server.patch(f"{PODS}/p/status", {"status": dict.fromkeys(status)}))["status"]
        for name in status:
            assert kept["status"][name] == replaced[name] == nulls[name] == status[name]
        cleared = (await server.patch(f"{PODS}/p/status", {"status": {"resourceClaimStatuses": []}}))["status"]
        assert "resourceClaimStatuses" not in cleared
        assert cleared["extendedResourceClaimStatus"] == status["extendedResourceClaimStatus"]


async def test_a_list_of_claims_of_the_node_is_cleared_alike(autojump_clock: MockClock) -> None:
    claims = [{"resourceClaimName": "c", "containers": ["main"], "resources": {"cpu": "1"}}]
    async with open_release({"DRANodeAllocatableResources": True}) as server:
        await server.post(PODS, _pod(resourceClaims=[{"name": "g", "resourceClaimName": "c"}]))
        name = "nodeAllocatableResourceClaimStatuses"
        answer = await server.ask("PATCH", f"{PODS}/p/status", {"status": {name: claims}}, headers=MERGE)
        assert answer.status == 200, answer.body
        assert name in (await server.patch(f"{PODS}/p/status", {"status": {name: None}}))["status"]
        assert name not in (await server.patch(f"{PODS}/p/status", {"status": {name: []}}))["status"]


@pytest.mark.parametrize(
    ("given", "address", "addresses"),
    [
        ({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.2"}, {"ip": "fd00::1"}]}, "10.0.0.1", ["10.0.0.1"]),
        ({"podIP": "10.0.0.1"}, "10.0.0.1", ["10.0.0.1"]),
        ({"podIPs": [{"ip": "10.0.0.2"}]}, "10.0.0.2", ["10.0.0.2"]),
    ],
)
async def test_one_address_and_the_list_of_addresses_agree(
    given: dict[str, Any], address: str, addresses: list[str], autojump_clock: MockClock
) -> None:
    async with open_release() as server:
        await server.post(PODS, pod("p"))
        status = (await server.patch(f"{PODS}/p/status", {"status": given}))["status"]
        assert (status["podIP"], [each["ip"] for each in status["podIPs"]]) == (address, addresses)


async def test_an_image_volume_needs_a_reference_in_templates_too(autojump_clock: MockClock) -> None:
    volumes = [{"name": "v", "image": {"pullPolicy": "Always"}}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER], "volumes": volumes}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    async with open_release() as server:
        (found,) = await _causes(server, "POST", PODS, _pod(volumes=volumes))
        assert found == ("spec.volumes[0].image.reference", "Required value")
        (found,) = await _causes(server, "POST", DEPLOYMENTS, body)
        assert found == ("spec.template.spec.volumes[0].image.reference", "Required value")


async def test_a_binding_to_a_bad_name_is_an_error_of_the_server(autojump_clock: MockClock) -> None:
    async with open_release() as server:
        await server.post(PODS, pod("p"))
        for name, beginning in (
            ("Bad_Node", 'target.name: Invalid value: "Bad_Node": '),
            ("", "target.name: Required"),
        ):
            body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": name}}
            refusal = (await server.ask("POST", f"{PODS}/p/binding", body)).refused(500)
            assert refusal["message"].startswith(beginning)
            assert "reason" not in refusal
            assert "details" not in refusal


@pytest.mark.parametrize(("uid", "code"), [(4294967295, 200), (4294967296, 422), (-1, 422)])
async def test_users_of_containers_have_32_bits(uid: int, code: int, autojump_clock: MockClock) -> None:
    async with open_release() as server:
        await server.post(PODS, pod("p"))
        of_main = {"name": "main", "image": "i", "imageID": "i", "ready": True, "restartCount": 0, "state": {}}
        of_main["user"] = {"linux": {"uid": uid, "gid": 0}}
        status = {"containerStatuses": [of_main]}
        answer = await server.ask("PATCH", f"{PODS}/p/status", {"status": status}, headers=MERGE)
        assert answer.status == code, answer.body
        if code == 422:
            (cause,) = answer.json()["details"]["causes"]
            assert cause["field"] == "status.containerStatuses[0].user.linux.uid"


async def test_the_resource_of_a_request_is_a_claim_with_that_request(autojump_clock: MockClock) -> None:
    """A container that names one request of a claim has no resource with the whole claim."""
    async with open_release() as server:
        claimed = {"claims": [{"name": "c", "request": "r"}]}
        container = {**CONTAINER, "resources": claimed}
        await server.post(PODS, _pod(containers=[container], resourceClaims=[{"name": "c", "resourceClaimName": "x"}]))
        health = [{"name": "claim:c", "resources": [{"resourceID": "d", "health": "Healthy"}]}]
        of_main = {"name": "main", "image": "i", "imageID": "i", "ready": True, "restartCount": 0, "state": {}}
        for name, code in (("claim:c", 422), ("claim:c/r", 200)):
            of_main["allocatedResourcesStatus"] = [{**health[0], "name": name}]
            status = {"containerStatuses": [of_main]}
            answer = await server.ask("PATCH", f"{PODS}/p/status", {"status": status}, headers=MERGE)
            assert answer.status == code, (name, answer.body)


@pytest.mark.parametrize("gate", [True, False])
async def test_a_probe_speaks_http1_unless_it_says_otherwise(gate: bool, autojump_clock: MockClock) -> None:
    probe = {"httpGet": {"path": "/", "port": 80}}
    async with open_release({"H2CContainerProbe": gate}) as server:
        made = await server.post(PODS, _pod(containers=[{**CONTAINER, "readinessProbe": probe}]))
        shown = made["spec"]["containers"][0]["readinessProbe"]["httpGet"]
        assert shown.get("protocol") == ("HTTP1" if gate else None)
