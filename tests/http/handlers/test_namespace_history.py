"""A namespace's name that is used again: the new tenant reads nothing of the earlier one."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from in_process import AUTHORIZATION, JOE, InProcess, open_server

API = "/apis/history.kubechronicle.dev/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SPACE = "/api/v1/namespaces/shop"
RULES = [
    {"apiGroups": ["history.kubechronicle.dev"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["*"], "verbs": ["get", "list", "watch"]},
]
SUBJECTS = [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]


async def tenants(server: InProcess) -> tuple[int, int]:
    """Let two tenants use the namespace shop. Return a revision of the first one, and the creation of the second's."""
    await server.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    secret = await server.post(f"{SPACE}/secrets", {"metadata": {"name": "key"}, "stringData": {"a": "first tenant"}})
    await server.delete(f"{SPACE}/secrets/key")
    await server.delete(SPACE)
    finalized = {"metadata": {"name": "shop"}, "spec": {"finalizers": []}}
    await server.put(f"{SPACE}/finalize", finalized)
    created = await server.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    await server.post(f"{SPACE}/configmaps", {"metadata": {"name": "new"}})
    await server.post(f"{RBAC}{SPACE.removeprefix('/api/v1')}/roles", {"metadata": {"name": "all"}, "rules": RULES})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"}
    binding = {"metadata": {"name": "joe"}, "roleRef": role, "subjects": SUBJECTS}
    await server.post(f"{RBAC}{SPACE.removeprefix('/api/v1')}/rolebindings", binding)
    return int(secret["metadata"]["resourceVersion"]), int(created["metadata"]["resourceVersion"])


async def test_a_new_tenant_reads_nothing_of_the_earlier_one(autojump_clock: Any) -> None:
    async with open_server(authorization=AUTHORIZATION) as server:
        old, created = await tenants(server)
        for path in (f"{SPACE}/secrets/key", f"{SPACE}/secrets", f"{SPACE}/secrets?watch=1", SPACE):
            refused = (await server.ask("GET", f"/history/at/{old}{path}", token=JOE)).refused(403)
            assert f"was created at revision {created}" in refused["message"]
        for query in (f"resourceVersion={old}&resourceVersionMatch=Exact", f"watch=1&resourceVersion={old}"):
            refused = (await server.ask("GET", f"{SPACE}/secrets?{query}", token=JOE)).refused(410)
            assert refused["reason"] == "Expired"
        for content in ("", "diff", "full", "states", "after"):
            listed = await server.ask("GET", f"{API}/namespaces/shop/revisions?content={content}", token=JOE)
            assert listed.status == 200
            assert b'"new"' in listed.body
            assert b'"key"' not in listed.body
        density = await server.get(f"{API}/namespaces/shop/revisions?summary=density", token=JOE)
        assert density["series"] == [
            {"name": name, "count": 1}
            for name in ("configmaps", "rolebindings.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io")
        ]
        assert (await server.ask("GET", f"{API}/namespaces/shop/revisions/{old}", token=JOE)).status == 404
        # Since the namespace exists, history is read as before; and so it is by readers of all namespaces.
        assert await server.names(f"/history/at/{created + 1}{SPACE}/configmaps") == ["new"]
        then = await server.get(f"/history/at/{created + 1}{SPACE}/configmaps/new", token=JOE)
        assert then["metadata"]["name"] == "new"
        assert await server.names(f"/history/at/{old}{SPACE}/secrets") == ["key"]


async def test_rights_to_all_revisions_show_no_contents_of_the_earlier_tenant(autojump_clock: Any) -> None:
    async with open_server(authorization=AUTHORIZATION) as server:
        await tenants(server)
        role = {"metadata": {"name": "history-reader"}, "rules": RULES[:1]}
        await server.post(f"{RBAC}/clusterroles", role)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "history-reader"}
        binding = {"metadata": {"name": "joe"}, "roleRef": reference, "subjects": SUBJECTS}
        await server.post(f"{RBAC}/clusterrolebindings", binding)
        selector = quote("object.resource=secrets")
        for content in ("full", "states"):
            path = f"{API}/namespaces/shop/revisions?content={content}&fieldSelector={selector}"
            items = (await server.get(path, token=JOE))["items"]
            assert len(items) == 2
            assert all(item["redacted"] for item in items)
        full = (await server.get(f"{API}/namespaces/shop/revisions?content=full", token=JOE))["items"]
        assert [item["object"]["name"] for item in full if "after" in item] == ["new"]


async def test_a_deleted_namespace_counts_until_its_name_is_used_again(autojump_clock: Any) -> None:
    async with open_server() as server:
        old, created = await tenants(server)
        await server.delete(SPACE)
        assert await server.names(f"/history/at/{old}{SPACE}/secrets") == ["key"]
        assert await server.names(f"/history/at/{created + 1}{SPACE}/configmaps") == ["new"]


async def test_a_new_tenant_learns_nothing_of_former_rights(autojump_clock: Any) -> None:
    async with open_server(authorization=AUTHORIZATION) as server:
        old, created = await tenants(server)
        rules = [{"apiGroups": ["authorization.k8s.io"], "resources": ["*"], "verbs": ["create"]}]
        space = f"{RBAC}/namespaces/shop"
        await server.post(f"{space}/roles", {"metadata": {"name": "asks"}, "rules": rules})
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "asks"}
        await server.post(
            f"{space}/rolebindings", {"metadata": {"name": "asks"}, "roleRef": role, "subjects": SUBJECTS}
        )
        spec = {"user": "eve", "resourceAttributes": {"namespace": "shop", "verb": "get", "resource": "secrets"}}
        review = "/apis/authorization.k8s.io/v1/namespaces/shop/localsubjectaccessreviews"
        question = f"{API}/namespaces/shop/revisions?summary=rights&verb=get&resource=secrets&user=eve"
        for moment, code in ((old, 403), (created + 1, 200)):
            asked = await server.ask("POST", f"/history/at/{moment}{review}", {"spec": spec}, token=JOE)
            found = await server.ask("GET", f"/history/at/{moment}{question}", token=JOE)
            assert (asked.status, found.status) == (code if code == 403 else 201, code)
