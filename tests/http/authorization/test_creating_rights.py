"""The right to update does not include creation: PUT and server-side apply require the right to create as well."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import JOE, InProcess, configmap, open_server
from trio.testing import MockClock

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
MAP = "/api/v1/namespaces/default/configmaps/c"
APPLY = {"content-type": "application/apply-patch+yaml"}


async def allow(server: InProcess, *verbs: str, name: str = "r", **rule: Any) -> None:
    """Give joe these verbs on leases and config maps."""
    rules = [{"apiGroups": ["*"], "resources": ["leases", "configmaps"], "verbs": list(verbs), **rule}]
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
    subjects = [{"apiGroup": GROUP, "kind": "User", "name": "joe"}]
    await server.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects}
    await server.post(f"{RBAC}/clusterrolebindings", binding)


async def put(server: InProcess) -> Any:
    return await server.ask("PUT", LEASE, {"metadata": {"name": "l"}, "spec": {}}, token=JOE)


async def apply(server: InProcess, query: str = "") -> Any:
    body = {"apiVersion": "v1", "kind": "ConfigMap", **configmap("c", k="v")}
    return await server.ask("PATCH", f"{MAP}?fieldManager=joe{query}", body, token=JOE, headers=APPLY)


@pytest.mark.parametrize(
    ("ask", "verb", "message", "second_status"),
    [
        # An update of a lease must name a revision.
        (
            put,
            "update",
            'leases.coordination.k8s.io "l" is forbidden: User "joe" cannot create resource "leases" in API group '
            '"coordination.k8s.io" in the namespace "default"',
            422,
        ),
        (
            apply,
            "patch",
            'configmaps "c" is forbidden: User "joe" cannot create resource "configmaps" in API group "" in the '
            'namespace "default"',
            200,
        ),
    ],
)
async def test_creating_requires_the_right_to_create(
    autojump_clock: MockClock, ask: Any, verb: str, message: str, second_status: int
) -> None:
    async with open_server() as server:
        await allow(server, verb)
        assert (await ask(server)).refused(403)["message"] == message
        await allow(server, "create", name="others", resourceNames=["other"])
        (await ask(server)).refused(403)
        await allow(server, "create", name="by-name", resourceNames=["l", "c"])
        assert (await ask(server)).status == 201
        assert (await ask(server)).status == second_status


async def test_the_right_to_update_allows_changes_only(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        await allow(server, "update", "patch")
        (await apply(server, "&dryRun=All")).refused(403)
        await server.post("/api/v1/namespaces/default/configmaps", configmap("c"))
        assert (await apply(server)).status == 200
