"""ResourceClaims: admin access requires a label on the namespace, and changes of the status rights of their own."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import JOE, open_server
from trio.testing import MockClock

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"


def claim(name: str, *, admin: bool) -> Any:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": admin}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


async def test_admin_access_requires_a_labelled_namespace(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(CLAIMS, claim("a", admin=False))
        template = {"metadata": {"name": "t"}, "spec": {"spec": claim("t", admin=True)["spec"]}}
        for target, body in ((CLAIMS, claim("b", admin=True)), (TEMPLATES, template)):
            refusal = (await server.ask("POST", target, body)).refused(422)
            (cause,) = refusal["details"]["causes"]
            assert cause["field"] == "spec.devices.requests[0].adminAccess"
            assert cause["message"] == (
                "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on "
                "the containing namespace"
            )
        nameless = claim("c", admin=True)
        nameless["spec"]["devices"]["requests"][0]["name"] = ""
        refusal = (await server.ask("POST", CLAIMS, nameless)).refused(422)
        fields = [cause["field"] for cause in refusal["details"]["causes"]]
        assert fields == ["spec.devices.requests[0].adminAccess", "spec.devices.requests[0].name"]
        merge = {"content-type": "application/merge-patch+json"}
        result = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "D", "adminAccess": True}
        granted = {"status": {"allocation": {"devices": {"results": [{**result, "adminAccess": False}, result]}}}}
        refusal = (await server.ask("PATCH", f"{CLAIMS}/a/status", granted, headers=merge)).refused(422)
        place = "status.allocation.devices.results"
        fields = [cause["field"] for cause in refusal["details"]["causes"]]
        assert fields == [f"{place}[1].adminAccess", f"{place}[0].device", f"{place}[1].device"]
        mark = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        await server.patch("/api/v1/namespaces/default", mark)
        await server.post(CLAIMS, claim("b", admin=True))
        await server.post(TEMPLATES, template)


RBAC = "/apis/rbac.authorization.k8s.io/v1"
MERGE = {"content-type": "application/merge-patch+json"}
RESULT = {"request": "r", "driver": "d.example.com", "pool": "p", "device": "one"}
ON_NODE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
ALLOCATED = {"status": {"allocation": {"devices": {"results": [RESULT]}, "nodeSelector": ON_NODE}}}
REPORTED = {"status": {"devices": [{"driver": "d.example.com", "pool": "p", "device": "one"}]}}
CONSUMED = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]}}


async def allow(server: Any, user: str, name: str, resource: str, verbs: list[str], **more: Any) -> None:
    """Give a user verbs on one resource of resource.k8s.io, everywhere."""
    rule = {"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": verbs, **more}
    await server.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    await server.post(f"{RBAC}/clusterrolebindings", binding)


async def test_an_allocation_requires_the_right_to_bind_claims(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await server.post(CLAIMS, claim("a", admin=False))
        await allow(server, "joe", "status", "resourceclaims/status", ["patch", "update"])
        refusal = (await server.ask("PATCH", f"{CLAIMS}/a/status", ALLOCATED, token=JOE, headers=MERGE)).refused(422)
        (cause,) = refusal["details"]["causes"]
        assert (cause["reason"], cause["field"]) == ("FieldValueForbidden", "status.allocation")
        assert cause["message"] == (
            "Forbidden: changing status.allocation or status.reservedFor requires "
            'resource="resourceclaims/binding", verb="patch" permission: resourceclaims.resource.k8s.io is forbidden: '
            'User "joe" cannot patch resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster '
            "scope"
        )
        await server.ask("PATCH", f"{CLAIMS}/a/status", ALLOCATED, headers=MERGE)
        refusal = (await server.ask("PATCH", f"{CLAIMS}/a/status", CONSUMED, token=JOE, headers=MERGE)).refused(422)
        assert [cause["field"] for cause in refusal["details"]["causes"]] == ["status.allocation"]
        held = await server.get(f"{CLAIMS}/a")
        (await server.ask("PUT", f"{CLAIMS}/a/status", held, token=JOE)).ok()  # nothing has changed
        await allow(server, "joe", "bind-by-patch", "resourceclaims/binding", ["patch"])
        (await server.ask("PATCH", f"{CLAIMS}/a/status", CONSUMED, token=JOE, headers=MERGE)).ok()
        held = await server.get(f"{CLAIMS}/a")
        del held["status"]["reservedFor"]
        refusal = (await server.ask("PUT", f"{CLAIMS}/a/status", held, token=JOE)).refused(422)
        assert 'verb="update" permission' in refusal["message"]


@pytest.mark.parametrize(
    ("driver", "allowed"), [("d.example.com", True), ("other.example.com", False)], ids=["its own", "another's"]
)
async def test_devices_require_the_right_to_their_driver(
    autojump_clock: MockClock, driver: str, *, allowed: bool
) -> None:
    async with open_server() as server:
        await server.post(CLAIMS, claim("a", admin=False))
        (await server.ask("PATCH", f"{CLAIMS}/a/status", ALLOCATED, headers=MERGE)).ok()
        await allow(server, "joe", "status", "resourceclaims/status", ["patch"])
        await allow(server, "joe", "driver", "resourceclaims/driver", ["arbitrary-node:patch"], resourceNames=[driver])
        answer = await server.ask("PATCH", f"{CLAIMS}/a/status", REPORTED, token=JOE, headers=MERGE)
        if allowed:
            answer.ok()
            return
        (cause,) = answer.refused(422)["details"]["causes"]
        assert (cause["reason"], cause["field"]) == ("FieldValueForbidden", "status.devices")
        assert cause["message"] == (
            'Forbidden: changing status.devices requires resource="resourceclaims/driver", '
            'verb="[arbitrary-node:patch]" permission: resourceclaims.resource.k8s.io "d.example.com" is forbidden: '
            'User "joe" cannot arbitrary-node:patch resource "resourceclaims/driver" in API group "resource.k8s.io" '
            'in the namespace "default"'
        )


@pytest.mark.parametrize(("node", "allowed"), [("n1", True), ("n2", False), ("", False)])
async def test_accounts_on_the_node_of_an_allocation(autojump_clock: MockClock, node: str, *, allowed: bool) -> None:
    account = "system:serviceaccount:kube-system:driver"
    async with open_server() as server:
        await server.post(CLAIMS, claim("a", admin=False))
        (await server.ask("PATCH", f"{CLAIMS}/a/status", ALLOCATED, headers=MERGE)).ok()
        await allow(server, account, "status", "resourceclaims/status", ["patch"])
        await allow(server, account, "driver", "resourceclaims/driver", ["associated-node:patch"])
        fields = {**MERGE, "impersonate-user": account}
        if node:
            fields["impersonate-extra-authentication.kubernetes.io%2fnode-name"] = node
        answer = await server.ask("PATCH", f"{CLAIMS}/a/status", REPORTED, headers=fields)
        assert answer.status == (200 if allowed else 422)
        if node == "n1":
            await allow(server, account, "bind", "resourceclaims/binding", ["patch"])
            # This drops the devices, too, which needs no right to their drivers.
            gone = {"status": {"allocation": None, "reservedFor": None}}
            answer = await server.ask("PATCH", f"{CLAIMS}/a/status", gone, headers=fields)
            assert "devices" not in answer.ok()["status"]
