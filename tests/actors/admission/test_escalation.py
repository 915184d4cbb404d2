"""Privilege escalation: roles and bindings may grant only rights that their writer has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from in_process import JOE, InProcess, open_server
from trio.testing import MockClock

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
HERE = f"{RBAC}/namespaces/default"
MERGE = {"content-type": "application/merge-patch+json"}
WRITING = {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["create", "update", "patch", "get"]}
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


def role(name: str, *rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules), **fields}


def binding(name: str, to: str, kind: str = "Role") -> dict[str, Any]:
    subjects = [{"apiGroup": GROUP, "kind": "User", "name": "joe"}]
    return {"metadata": {"name": name}, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": to}, "subjects": subjects}


@asynccontextmanager
async def with_joe(*rules: dict[str, Any], everywhere: bool = False) -> AsyncIterator[InProcess]:
    """Let Joe write roles and bindings, and give him these rules."""
    async with open_server() as server:
        where, kind = (RBAC, "ClusterRole") if everywhere else (HERE, "Role")
        plural = "clusterroles" if everywhere else "roles"
        await server.post(f"{where}/{plural}", role("joe", WRITING, *rules))
        await server.post(f"{where}/{plural[:-1]}bindings", binding("joe", "joe", kind))
        yield server


async def test_a_role_may_have_the_rules_of_its_writer(autojump_clock: MockClock) -> None:
    async with with_joe(PODS) as server:
        (await server.ask("POST", f"{HERE}/roles", role("ok", PODS), token=JOE)).ok()
        more = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}
        error = (await server.ask("POST", f"{HERE}/roles", role("up", PODS, more), token=JOE)).refused(403)
        assert error["message"] == (
            f'roles.{GROUP} "up" is forbidden: user "joe" (groups=["developers" "system:authenticated"]) is attempting '
            "to grant RBAC permissions not currently held:\n"
            '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
        )
        assert error["details"] == {"name": "up", "group": GROUP, "kind": "roles"}
        patch = {"rules": [more]}
        (await server.ask("PATCH", f"{HERE}/roles/ok", patch, token=JOE, headers=MERGE)).refused(403)
        assert (await server.get(f"{HERE}/roles/ok"))["rules"] == [PODS]


async def test_a_binding_may_grant_the_rules_of_its_writer(autojump_clock: MockClock) -> None:
    async with with_joe(PODS) as server:
        await server.post(f"{HERE}/roles", role("reader", PODS))
        await server.post(f"{HERE}/roles", role("all", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}))
        (await server.ask("POST", f"{HERE}/rolebindings", binding("ok", "reader"), token=JOE)).ok()
        (await server.ask("POST", f"{HERE}/rolebindings", binding("up", "all"), token=JOE)).refused(403)
        error = (await server.ask("POST", f"{HERE}/rolebindings", binding("x", "ghost"), token=JOE)).refused(404)
        assert error["message"] == f'rolebindings.{GROUP} "ghost" not found'


async def test_bind_and_escalate_replace_the_rules(autojump_clock: MockClock) -> None:
    may = [
        {"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["bind"], "resourceNames": ["all"]},
        {"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["escalate"]},
    ]
    async with with_joe(*may) as server:
        everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        (await server.ask("POST", f"{HERE}/roles", role("all", everything), token=JOE)).ok()
        await server.post(f"{HERE}/roles", role("other", PODS))
        (await server.ask("POST", f"{HERE}/rolebindings", binding("other", "other"), token=JOE)).refused(403)
        (await server.ask("POST", f"{HERE}/rolebindings", binding("all", "all"), token=JOE)).ok()
        (
            await server.ask("POST", f"{HERE}/rolebindings", binding("other", "other"), token=JOE)
        ).ok()  # now has all rules


async def test_aggregation_requires_every_right(autojump_clock: MockClock) -> None:
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}
    async with with_joe(PODS, everywhere=True) as server:
        body = role("whole", aggregationRule=selectors)
        error = (await server.ask("POST", f"{RBAC}/clusterroles", body, token=JOE)).refused(403)
        assert error["message"].endswith("must have cluster-admin privileges to use the aggregationRule")
        await server.post(f"{RBAC}/clusterroles", body)
        change = {"metadata": {"labels": {"a": "b"}}}
        (await server.ask("PATCH", f"{RBAC}/clusterroles/whole", change, token=JOE, headers=MERGE)).refused(403)
        change = {"metadata": {"finalizers": ["example.com/x"]}}
        (await server.ask("PATCH", f"{RBAC}/clusterroles/whole", change, token=JOE, headers=MERGE)).ok()


async def test_a_list_by_name_requires_the_right_to_that_object_alone(autojump_clock: MockClock) -> None:
    async with with_joe({**PODS, "resourceNames": ["a"]}) as server:
        pods = "/api/v1/namespaces/default/pods"
        (await server.ask("GET", f"{pods}?fieldSelector=metadata.name%3Da", token=JOE)).ok()
        (await server.ask("GET", f"{pods}?fieldSelector=metadata.name%3Db", token=JOE)).refused(403)
        (await server.ask("GET", f"{pods}?fieldSelector=metadata.name!%3Da", token=JOE)).refused(403)
        (await server.ask("GET", pods, token=JOE)).refused(403)
