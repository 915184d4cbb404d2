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


async def test_policies_that_are_not_judged_are_named(autojump_clock: Any) -> None:
    async with open_server() as server:
        await history(server)
        asks = "authorizer.group('').resource('pods').check('list').allowed()"
        await bound(server, "asks", asks, "Audit")
        chosen = {"selector": {"matchLabels": {"a": "b"}}, "parameterNotFoundAction": "Allow"}
        kind = {"apiVersion": "v1", "kind": "ConfigMap"}
        await bound(server, "chooses", "params == null", "Audit", paramRef=chosen, paramKind=kind)
        answer = await server.ask("GET", f"{API}/revisions?verdicts=audited")
        refused = await server.ask("GET", f"{API}/revisions?verdicts=audited", token=JOE)
    assert answer.ok()["items"] == []
    how = "kubectl chronicle try-policy --audited judges it."
    assert [text for name, text in answer.headers if name == "warning"] == [
        f'299 - "The binding chooses is left out, because it selects parameters by labels. {how}"',
        f'299 - "The policy asks is left out, because it asks for rights. {how}"',
    ]
    assert not [text for name, text in refused.headers if name == "warning"]
