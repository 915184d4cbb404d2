"""A change of rights has effect from the next request on, also on the same connection."""

from __future__ import annotations

import json
from typing import Any

from in_process import ADMIN, JOE, open_server
from trio.testing import MockClock

RBAC = "/apis/rbac.authorization.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"
GROUP = "rbac.authorization.k8s.io"
USER = {"kind": "User", "apiGroup": GROUP, "name": "joe"}
STAFF = {"kind": "Group", "apiGroup": GROUP, "name": "developers"}
READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


class Connection:
    """An HTTP/1.1 connection with requests of an administrator and of joe."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def ask(self, method: str, target: str, body: Any = None, *, token: str = ADMIN) -> Any:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        data = json.dumps(body).encode() if body is not None else b""
        return await self._client.ask(method, target, data, headers)

    async def change(self, method: str, target: str, body: Any = None) -> None:
        answer = await self.ask(method, target, body)
        assert answer.status in (200, 201), answer.body

    async def joe_may(self, target: str = PODS, method: str = "GET") -> bool:
        answer = await self.ask(method, target, token=JOE)
        assert answer.status in (200, 403), answer.body
        return answer.status == 200


def role(*rules: Any, name: str = "reader", **metadata: Any) -> Any:
    return {"metadata": {"name": name, **metadata}, "rules": list(rules)}


def binding(kind: str, subject: Any = USER, name: str = "joe", role: str = "reader") -> Any:
    reference = {"apiGroup": GROUP, "kind": kind, "name": role}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}


async def test_bindings_and_roles_on_one_connection(wire: Any) -> None:
    async with open_server() as server:
        http = Connection(await (await wire(server.assembly.application.application)).http1())
        roles, bindings = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"
        await http.change("POST", bindings, binding("Role"))
        for _ in range(10):
            assert not await http.joe_may()  # the role does not exist
            await http.change("POST", roles, role(READ))
            assert await http.joe_may()
            await http.change("PUT", f"{roles}/reader", role({**READ, "verbs": ["get"]}))
            assert not await http.joe_may()
            await http.change("PUT", f"{roles}/reader", role(READ))
            assert await http.joe_may()
            await http.change("DELETE", f"{bindings}/joe")
            assert not await http.joe_may()
            await http.change("POST", bindings, binding("Role", STAFF))
            assert await http.joe_may()
            await http.change("DELETE", f"{roles}/reader")
            assert not await http.joe_may()


async def test_cluster_wide_on_one_connection(wire: Any) -> None:
    async with open_server() as server:
        http = Connection(await (await wire(server.assembly.application.application)).http1())
        roles, bindings = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
        await http.change("POST", roles, role(READ))
        for _ in range(10):
            await http.change("POST", bindings, binding("ClusterRole"))
            assert await http.joe_may()
            assert await http.joe_may("/api/v1/pods")
            await http.change("DELETE", f"{bindings}/joe")
            assert not await http.joe_may()
            inside = f"{RBAC}/namespaces/default/rolebindings"
            await http.change("POST", inside, binding("ClusterRole"))
            assert await http.joe_may()
            assert not await http.joe_may("/api/v1/pods")
            await http.change("DELETE", f"{inside}/joe")
            assert not await http.joe_may()


async def test_an_aggregated_role_on_one_connection(autojump_clock: MockClock) -> None:
    """The aggregated rules follow by a control loop, and have effect at once."""
    async with open_server(loops=True, controllers=frozenset({"clusterrole-aggregation"})) as server:

        async def joe_may() -> bool:
            return (await server.ask("GET", PODS, token=JOE)).status == 200

        selectors = {"clusterRoleSelectors": [{"matchLabels": {"to": "joe"}}]}
        await server.post(f"{RBAC}/clusterroles", {"metadata": {"name": "all"}, "aggregationRule": selectors})
        await server.post(f"{RBAC}/clusterrolebindings", binding("ClusterRole", role="all"))
        target = f"{RBAC}/clusterroles?watch=1&fieldSelector=metadata.name=all"
        async with server.watch(target) as stream:
            await stream.next()
            for _ in range(3):
                await server.post(f"{RBAC}/clusterroles", role(READ, name="part", labels={"to": "joe"}))
                event = await stream.next()
                assert event is not None
                assert event["object"]["rules"] == [READ]
                assert await joe_may()
                await server.delete(f"{RBAC}/clusterroles/part")
                event = await stream.next()
                assert event is not None
                assert not event["object"].get("rules")
                assert not await joe_may()
