"""Lists of revisions with ?verdicts=audited: the writes that policies bound with Audit alone would have refused."""

from __future__ import annotations

from typing import Any

from in_process import JOE, InProcess, open_server

API = "/apis/history.kubechronicle.dev/v1"
GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/shop/configmaps"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE", "DELETE"],
    "resources": ["configmaps"],
}
SHOP = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}


async def bound(server: InProcess, name: str, expression: str, *actions: str, **spec: Any) -> None:
    """Create a policy with its binding. ``spec``: of the binding and the policy."""
    rules = {"resourceRules": [RULE]}
    message = "'value ' + (object == null ? 'gone' : string(object.data.a))"
    validations = [{"expression": expression, "messageExpression": message}]
    params = {each: spec.pop(each) for each in ("paramKind",) if each in spec}
    policy = {"metadata": {"name": name}, "spec": {"matchConstraints": rules, "validations": validations, **params}}
    binding = {"policyName": name, "validationActions": list(actions), "matchResources": SHOP, **spec}
    await server.ask("POST", f"{GROUP}/validatingadmissionpolicies", policy)
    path = f"{GROUP}/validatingadmissionpolicybindings"
    await server.ask("POST", path, {"metadata": {"name": name}, "spec": binding})


async def history(server: InProcess) -> None:
    """Write some ConfigMaps, before any policy exists, while the namespace changes its team and the limit its value."""
    await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop", "labels": {"team": "blue"}}})
    await server.ask("POST", MAPS, {"metadata": {"name": "limit"}, "data": {"most": "3", "a": "0"}})
    for name, value in (("x", "1"), ("y", "5")):
        await server.ask("POST", MAPS, {"metadata": {"name": name}, "data": {"a": value}})
    patch = {"content-type": "application/merge-patch+json"}
    team = {"metadata": {"labels": {"team": "red"}}}
    await server.ask("PATCH", "/api/v1/namespaces/shop", team, headers=patch)
    await server.ask("PATCH", f"{MAPS}/limit", {"data": {"most": "7"}}, headers=patch)
    await server.ask("PATCH", f"{MAPS}/x", {"data": {"a": "6"}}, headers=patch)
    await server.ask("DELETE", f"{MAPS}/y")


async def verdicts(server: InProcess, query: str = "") -> list[tuple[str, str, str, str]]:
    """Return (operation, object, policy, message) of each verdict, oldest first."""
    found = await server.get(f"{API}/revisions?verdicts=audited&order=oldest{query}")
    return [
        (item["operation"], item["object"]["name"], verdict["policy"], verdict["message"])
        for item in found["items"]
        for verdict in item["verdicts"]
    ]


async def test_writes_that_policies_would_have_refused(autojump_clock: Any) -> None:
    async with open_server() as server:
        await history(server)
        assert await verdicts(server) == []
        small = "object == null || !has(object.data.a) || int(object.data.a) < 3"
        await bound(server, "small", small, "Audit")
        await bound(server, "warns", small, "Audit", "Warn")
        expected = [("Create", "y", "small", "value 5"), ("Update", "x", "small", "value 6")]
        assert [each for each in await verdicts(server) if each[1] != "kube-root-ca.crt"] == expected
        assert await verdicts(server, "&fieldSelector=operation%3DUpdate") == expected[1:]
        await bound(server, "kept", "request.operation != 'DELETE'", "Audit")
        assert ("Delete", "y", "kept", "value gone") in await verdicts(server)


async def test_namespaces_and_parameters_are_those_of_the_moment(autojump_clock: Any) -> None:
    async with open_server() as server:
        await history(server)
        team = "object == null || object.metadata.name != 'x' || namespaceObject.metadata.labels.team == 'red'"
        await bound(server, "team", team, "Audit")
        assert await verdicts(server) == [("Create", "x", "team", "value 1")]
        await server.ask("DELETE", f"{GROUP}/validatingadmissionpolicybindings/team")
        limited = "object == null || !has(object.data.a) || int(object.data.a) <= int(params.data.most)"
        reference = {"name": "limit", "namespace": "shop", "parameterNotFoundAction": "Allow"}
        kind = {"apiVersion": "v1", "kind": "ConfigMap"}
        await bound(server, "limited", limited, "Audit", paramRef=reference, paramKind=kind)
        assert await verdicts(server) == [("Create", "y", "limited", "value 5")]


async def test_rights(autojump_clock: Any) -> None:
    async with open_server() as server:
        await history(server)
        await bound(server, "small", "object == null || !has(object.data.a) || int(object.data.a) < 3", "Audit")
        refused = await server.ask("GET", f"{API}/revisions?verdicts=audited", token=JOE)
        refused.refused(403)
        (await server.ask("GET", f"{API}/revisions?verdicts=denied")).refused(400)
        (await server.ask("GET", f"{API}/revisions?verdicts=audited&watch=1")).refused(400)
        rules = [
            {"apiGroups": ["history.kubechronicle.dev"], "resources": ["revisions"], "verbs": ["list"]},
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["list"]},
        ]
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        await server.ask("POST", f"{rbac}/clusterroles", {"metadata": {"name": "reader"}, "rules": rules})
        subject = {"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "ClusterRole", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}
        body = {"metadata": {"name": "reader"}, "subjects": [subject], "roleRef": role}
        await server.ask("POST", f"{rbac}/clusterrolebindings", body)
        found = await server.get(f"{API}/revisions?verdicts=audited", token=JOE)
        assert found["items"] == []  # he may not get the objects


async def test_parameters_selected_by_labels_are_those_of_the_moment(autojump_clock: Any) -> None:
    async with open_server() as server:
        await history(server)
        chosen = {"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Allow"}
        kind = {"apiVersion": "v1", "kind": "ConfigMap"}
        within = "object == null || !has(object.data.a) || int(object.data.a) <= int(params.data.most)"
        await bound(server, "chooses", within, "Audit", paramRef=chosen, paramKind=kind)
        assert await verdicts(server) == []
        for name, most, value in (("l1", "4", "5"), ("l2", "2", "3")):
            limit = {"metadata": {"name": name, "labels": {"limit": "yes"}}, "data": {"most": most, "a": "0"}}
            await server.ask("POST", MAPS, limit)
            await server.ask("POST", MAPS, {"metadata": {"name": f"z{value}"}, "data": {"a": value}})
        await server.ask("DELETE", f"{MAPS}/l2")
        await server.ask("POST", MAPS, {"metadata": {"name": "z4"}, "data": {"a": "4"}})
        expected = [("Create", "z5", "chooses", "value 5"), ("Create", "z3", "chooses", "value 3")]
        assert await verdicts(server) == expected
        assert await verdicts(server, "&fieldSelector=object.name%3Dz3") == expected[1:]


async def test_rights_are_those_of_the_moment(autojump_clock: Any) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    async with open_server() as server:
        await history(server)
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "delete"]}]
        await server.ask("POST", f"{rbac}/clusterroles", {"metadata": {"name": "maker"}, "rules": rules})
        subject = {"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "ClusterRole", "name": "maker", "apiGroup": "rbac.authorization.k8s.io"}
        body = {"metadata": {"name": "joe"}, "subjects": [subject], "roleRef": role}
        await server.ask("POST", f"{rbac}/clusterrolebindings", body)
        (await server.ask("POST", MAPS, {"metadata": {"name": "j1"}, "data": {"a": "1"}}, token=JOE)).ok()
        patch = {"content-type": "application/merge-patch+json"}
        rules[0]["verbs"].append("approve")
        await server.ask("PATCH", f"{rbac}/clusterroles/maker", {"rules": rules}, headers=patch)
        (await server.ask("POST", MAPS, {"metadata": {"name": "j2"}, "data": {"a": "2"}}, token=JOE)).ok()
        await server.ask("DELETE", f"{rbac}/clusterrolebindings/joe")
        approved = "authorizer.group('').resource('configmaps').namespace('shop').check('approve').allowed()"
        await bound(server, "approved", approved, "Audit")
        answer = await server.ask("GET", f"{API}/revisions?verdicts=audited&order=oldest")
        refused = await server.ask("GET", f"{API}/revisions?verdicts=audited", token=JOE)
    mine = [item["object"]["name"] for item in answer.ok()["items"] if item["who"]["username"] == "joe"]
    assert mine == ["j1"]
    assert [text for name, text in answer.headers if name == "warning"] == [
        '299 - "The policy approved asks for rights. They are answered by RBAC alone, as of each write."'
    ]
    assert not [text for name, text in refused.headers if name == "warning"]
