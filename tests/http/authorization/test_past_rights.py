"""Reviews below /history/at/MOMENT: by the roles, bindings, Pods and volumes of the moment."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import JOE, InProcess, open_server, pod
from trio.testing import MockClock

from kubechronicle.http.authorization.configuration import of_modes
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
GET_PODS = {"namespace": "default", "verb": "get", "resource": "pods"}


def role(name: str, *verbs: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": list(verbs)}]}


def binding(name: str, kind: str, role: str, *users: str) -> dict[str, Any]:
    subjects = [{"apiGroup": GROUP, "kind": "User", "name": user} for user in users]
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": subjects,
    }


async def review(server: InProcess, moment: int, user: str, attributes: dict[str, Any], *groups: str) -> Any:
    spec = {"user": user, "groups": list(groups), "resourceAttributes": attributes}
    return await server.ask("POST", f"/history/at/{moment}{REVIEWS}/subjectaccessreviews", {"spec": spec})


async def status(server: InProcess, moment: int, user: str, attributes: dict[str, Any], *groups: str) -> Any:
    return (await review(server, moment, user, attributes, *groups)).ok()["status"]


async def test_rbac_decides_by_the_roles_and_bindings_of_the_moment(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        moments = []

        async def then(change: Any) -> None:
            await change
            moments.append(server.store.reads.applied)

        roles, bindings = f"{RBAC}/namespaces/default/roles", f"{RBAC}/namespaces/default/rolebindings"
        await then(server.post(roles, role("r", "get")))
        await then(server.post(bindings, binding("b", "Role", "r", "joe")))
        await then(server.put(f"{roles}/r", role("r", "list")))
        await then(server.post(f"{RBAC}/clusterroles", role("wide", "get")))
        await then(server.post(f"{RBAC}/clusterrolebindings", binding("wide", "ClusterRole", "wide", "joe")))
        await then(server.delete(f"{RBAC}/clusterrolebindings/wide"))
        found = [await status(server, moment, "joe", GET_PODS) for moment in moments]
        assert [each["allowed"] for each in found] == [False, True, False, False, True, False]
        assert found[1]["reason"] == 'RBAC: allowed by RoleBinding "b/default" of Role "r" to User "joe"'
        answer = await review(server, moments[1], "joe", GET_PODS)
        assert f"(revision {moments[1]}), by the authorizers of the present flags: Node, RBAC" in answer.header(
            "warning"
        )
        # The reviews about oneself, which say that the groups are the present ones.
        own = await server.ask(
            "POST",
            f"/history/at/{moments[1]}{REVIEWS}/selfsubjectaccessreviews",
            {"spec": {"resourceAttributes": GET_PODS}},
            token=JOE,
        )
        assert own.status == 403  # nobody may create reviews without the role system:basic-user
        local = {"spec": {"user": "joe", "resourceAttributes": GET_PODS}}
        path = f"/history/at/{moments[1]}{REVIEWS}/namespaces/default/localsubjectaccessreviews"
        assert (await server.post(path, local))["status"]["allowed"] is True


async def test_rules_are_those_of_the_moment() -> None:
    # No virtual clock: all bootstrap roles together are large work, which is done in a thread.
    async with open_server(loops=True) as server:
        await server.post(f"{RBAC}/clusterroles", role("wide", "get"))
        bound = await server.post(f"{RBAC}/clusterrolebindings", binding("wide", "ClusterRole", "wide", "joe"))
        moment = int(bound["metadata"]["resourceVersion"])
        await server.delete(f"{RBAC}/clusterrolebindings/wide")
        path = f"{REVIEWS}/selfsubjectrulesreviews"
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
        then = await server.ask("POST", f"/history/at/{moment}{path}", {"spec": {"namespace": "default"}}, token=JOE)
        assert rule in then.ok()["status"]["resourceRules"]
        assert "your groups are the present ones" in then.header("warning")
        now = await server.post(path, {"spec": {"namespace": "default"}}, token=JOE)
        assert rule not in now["status"]["resourceRules"]
        spec = {"resourceAttributes": GET_PODS}
        own = f"{REVIEWS}/selfsubjectaccessreviews"
        assert (await server.post(f"/history/at/{moment}{own}", {"spec": spec}, token=JOE))["status"]["allowed"] is True
        assert (await server.post(own, {"spec": spec}, token=JOE))["status"]["allowed"] is False


async def test_a_node_is_related_to_the_objects_of_its_pods_of_then(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        before = server.store.reads.applied
        bound = pod("p", node="n1")
        bound["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "s"}}]
        there = int((await server.post("/api/v1/namespaces/default/pods", bound))["metadata"]["resourceVersion"])
        await server.delete("/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0")
        after = server.store.reads.applied
        secret = {"namespace": "default", "verb": "get", "resource": "secrets", "name": "s"}
        for moment, allowed in ((before, False), (there, True), (after, False)):
            found = await status(server, moment, "system:node:n1", secret, "system:nodes")
            assert found["allowed"] is allowed
        assert (await status(server, there, "system:node:n2", secret, "system:nodes"))["allowed"] is False


async def test_a_volume_relates_its_secret_to_the_node(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        claimed = pod("p", node="n1")
        claimed["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
        await server.post("/api/v1/namespaces/default/pods", claimed)
        csi = {"driver": "d", "volumeHandle": "h", "nodeStageSecretRef": {"namespace": "keys", "name": "s"}}
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": csi,
            "claimRef": {"namespace": "default", "name": "c"},
        }
        await server.post("/api/v1/persistentvolumes", {"metadata": {"name": "pv"}, "spec": spec})
        moment = server.store.reads.applied
        await server.delete("/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0")
        gone = server.store.reads.applied
        for attributes in (
            {"namespace": "keys", "verb": "get", "resource": "secrets", "name": "s"},
            {"verb": "get", "resource": "persistentvolumes", "name": "pv"},
        ):
            found = [await status(server, at, "system:node:n1", attributes, "system:nodes") for at in (moment, gone)]
            assert [each["allowed"] for each in found] == [True, False]


async def test_an_authorizer_without_history_is_not_asked(autojump_clock: MockClock) -> None:
    plan = AuthorizationPlan(configured=of_modes(("RBAC", "ABAC")), policies=[])
    async with open_server(authorization=plan) as server:
        await server.post(f"{RBAC}/clusterroles", role("wide", "get"))
        await server.post(f"{RBAC}/clusterrolebindings", binding("wide", "ClusterRole", "wide", "joe"))
        moment = server.store.reads.applied
        assert (await status(server, moment, "joe", GET_PODS))["allowed"] is True
        refused = (await review(server, moment, "jane", GET_PODS)).refused(405)
        assert "history does not have the past decisions of the authorizer ABAC" in refused["message"]
        rules = await server.post(
            f"/history/at/{moment}{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}
        )
        assert rules["status"]["incomplete"] is True
        assert "ABAC" in rules["status"]["evaluationError"]


async def test_tokens_have_no_past(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        path = f"/history/at/{server.store.reads.applied}/apis/authentication.k8s.io/v1/tokenreviews"
        refused = (await server.ask("POST", path, {"spec": {"token": "x"}})).refused(405)
        assert "past validity of tokens" in refused["message"]


@pytest.mark.parametrize("moment", ["1000000", "2300-01-01"])
async def test_a_moment_that_does_not_exist_is_refused(autojump_clock: MockClock, moment: str) -> None:
    async with open_server() as server:
        spec = {"user": "joe", "resourceAttributes": GET_PODS}
        path = f"/history/at/{moment}{REVIEWS}/subjectaccessreviews"
        (await server.ask("POST", path, {"spec": spec})).refused(400)
