"""No path has one meaning for the authorizer and another for the handler.

The user joe may read everything, and do everything in one namespace. No spelling of a path gives joe more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from in_process import JOE, InProcess, configmap, open_server, pod

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
USER = {"kind": "User", "apiGroup": GROUP, "name": "joe"}
READER = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch", "proxy"]}
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


def binding(role: str) -> Any:
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}
    return {"metadata": {"name": role}, "roleRef": reference, "subjects": [USER]}


@pytest.fixture
async def server() -> AsyncIterator[InProcess]:
    async with open_server(namespaces=("default", "joes")) as server:
        for name, rule in (("reader", READER), ("owner", EVERYTHING)):
            await server.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
        await server.post(f"{RBAC}/clusterrolebindings", binding("reader"))
        await server.post(f"{RBAC}/namespaces/joes/rolebindings", binding("owner"))
        await server.post("/api/v1/namespaces/default/pods", pod("p"))
        await server.post("/api/v1/namespaces/default/configmaps", configmap("c"))
        await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "a"}})
        yield server


STATUS = {"metadata": {"name": "p"}, "status": {"phase": "Failed"}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
BINDING = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}


@pytest.mark.parametrize("prefix", ["watch", "proxy"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "namespaces/default/serviceaccounts/a/token", {"spec": {}}),
        ("PUT", "namespaces/default/pods/p/status", STATUS),
        ("PATCH", "namespaces/default/pods/p/status", STATUS),
        ("POST", "namespaces/default/pods/p/eviction", EVICTION),
        ("POST", "namespaces/default/pods/p/binding", BINDING),
        ("PUT", "namespaces/default/configmaps/c", configmap("c", k="v")),
        ("PATCH", "namespaces/default/configmaps/c", {"data": {"k": "v"}}),
        ("DELETE", "namespaces/default/configmaps/c", None),
        ("DELETE", "namespaces/default/configmaps", None),
        ("POST", "namespaces/default/configmaps", configmap("other")),
    ],
)
async def test_a_verb_in_the_path_is_not_the_right_to_another(
    server: InProcess, prefix: str, method: str, path: str, body: Any
) -> None:
    headers = {"content-type": "application/merge-patch+json"} if method == "PATCH" else {}
    answer = await server.ask(method, f"/api/v1/{prefix}/{path}", body, token=JOE, headers=headers)
    assert answer.status in (404, 405), answer.body


async def test_the_old_verbs_in_paths_are_not_found(server: InProcess) -> None:
    for path in (
        "/api/v1/proxy/namespaces/default/configmaps/c",
        "/api/v1/proxy/namespaces/default/configmaps",
        "/api/v1/watch/namespaces/default/pods/p/status",
        "/apis/apps/v1/proxy/deployments",
    ):
        assert (await server.ask("GET", path)).status in (404, 405), path


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "/api/v1/namespaces/joes/namespaces/default", None),
        ("PUT", "/api/v1/namespaces/joes/namespaces/default", {"metadata": {"name": "default", "labels": {"a": "b"}}}),
        ("PUT", "/api/v1/namespaces/joes/namespaces/default/status", {"metadata": {"name": "default"}, "status": {}}),
        ("PUT", "/api/v1/namespaces/joes/namespaces/default/finalize", {"metadata": {"name": "default"}}),
        ("POST", "/api/v1/namespaces/joes/namespaces", {"metadata": {"name": "mine"}}),
        ("DELETE", "/api/v1/namespaces/joes/nodes/n", None),
        ("POST", f"{RBAC}/namespaces/joes/clusterrolebindings", binding("owner")),
    ],
)
async def test_rights_in_a_namespace_end_there(server: InProcess, method: str, path: str, body: Any) -> None:
    answer = await server.ask(method, path, body, token=JOE)
    assert answer.status == 404, answer.body


async def test_namespaces_are_not_listed_below_one(server: InProcess) -> None:
    for query in ("", "?watch=1"):
        assert (await server.ask("GET", f"/api/v1/namespaces/joes/namespaces{query}")).status == 404
    assert (await server.ask("GET", "/api/v1/watch/namespaces/joes/namespaces/default")).status == 404
    assert (await server.ask("PUT", "/api/v1/namespaces/joes", {"metadata": {"name": "joes"}}, token=JOE)).status == 200


async def test_the_answered_verb_is_the_authorized_one(server: InProcess) -> None:
    """For any path: it is not found, or joe can only read outside of his namespace."""
    before = await server.get("/api/v1/namespaces/default/configmaps")
    tails = ["configmaps", "configmaps/c", "pods/p", "pods/p/status", "serviceaccounts/a/token", "", "status"]
    for start in (
        "/api/v1/",
        "/api/v1//",
        "/api//v1/",
        "//api/v1/",
        "/api/v1/watch/",
        "/api/v1/proxy/",
        "/%61pi/v1/",
        "/api/v1/watch/watch/",
        "/api/v1/namespaces/joes/watch/",
        "/api/v1/namespaces/joes/..%2f..%2f",
        "/history/at/1/api/v1/",
        "/history/at/1/history/at/2/api/v1/",
        "/history/at//api/v1/",
    ):
        for middle in (
            "namespaces/default/",
            "namespaces/joes/../default/",
            "namespaces/joes/namespaces/default/",
            "namespaces%2fdefault%2f",
            "namespaces/default//",
        ):
            for tail in tails:
                for method in ("POST", "PUT", "DELETE"):
                    path = f"{start}{middle}{tail}"
                    answer = await server.ask(method, path, {"metadata": {"name": "c"}}, token=JOE)
                    assert answer.status in (400, 403, 404, 405), (method, path, answer.status, answer.body)
    assert (await server.get("/api/v1/namespaces/default/configmaps"))["items"] == before["items"]
