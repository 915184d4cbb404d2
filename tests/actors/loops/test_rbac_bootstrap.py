"""The default roles and bindings, and aggregated roles."""

from __future__ import annotations

from typing import Any

import pytest
from in_process import JOE, InProcess, open_server
from stalls.longest_pass import passes_below
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.actors.loops.bootstrap.rbac import aggregated, completed
from kubechronicle.actors.pauses import Pauses
from kubechronicle.api.builtin import rbac as policy
from kubechronicle.api.values.steps import finish
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.records import Operation

RBAC = "/apis/rbac.authorization.k8s.io/v1"
AGGREGATION = frozenset({"clusterrole-aggregation"})


def role(name: str, *rules: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "rules": list(rules)}


def rule(*verbs: str, resource: str = "pods") -> dict[str, Any]:
    return {"verbs": list(verbs), "apiGroups": [""], "resources": [resource]}


async def rules_of(server: InProcess, name: str) -> list[dict[str, Any]]:
    actual: list[dict[str, Any]] = (await server.get(f"{RBAC}/clusterroles/{name}"))["rules"] or []
    return actual


async def test_the_first_server_creates_them_and_the_second_finds_them(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with open_server(store, loops=True) as server:
        for plural, wanted in (
            ("clusterroles", policy.cluster_roles()),
            ("clusterrolebindings", policy.cluster_role_bindings()),
            ("roles", policy.roles()),
            ("rolebindings", policy.role_bindings()),
        ):
            actual = (await server.get(f"{RBAC}/{plural}"))["items"]
            key = lambda obj: (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])  # noqa: E731
            assert sorted(map(key, actual)) == sorted(map(key, wanted))
            by_key = {key(obj): obj for obj in actual}
            for each in wanted:
                held = by_key[key(each)]
                assert {name: held.get(name) for name in ("rules", "subjects", "roleRef")} == {
                    name: each.get(name) for name in ("rules", "subjects", "roleRef")
                }
                assert held["metadata"]["labels"] == each["metadata"]["labels"]
        before = store.head().revision
    async with open_server(store, loops=True):
        kinds = {row.key.resource for row in store.rows(after=before)}
        assert not {kind for kind in kinds if "rbac" in kind}


async def test_removed_rules_come_back_unless_autoupdate_is_off(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    path = f"{RBAC}/clusterroles/system:discovery"
    basic = f"{RBAC}/clusterroles/system:basic-user"
    async with open_server(store, loops=True) as server:
        wanted = await rules_of(server, "system:basic-user")
        await server.patch(path, {"rules": [], "metadata": {"annotations": {policy.AUTOUPDATE: "false"}}})
        await server.patch(basic, {"rules": [rule("get")]})
        await server.ask("DELETE", f"{RBAC}/clusterrolebindings/system:kube-dns")
    async with open_server(store, loops=True) as server:
        assert await rules_of(server, "system:discovery") == []
        actual = await rules_of(server, "system:basic-user")
        assert actual[0] == rule("get")
        assert (
            completed(
                {**await server.get(basic), "rules": actual},
                {"metadata": {"labels": {}, "annotations": {}}, "rules": wanted},
            )
            is None
        )
        assert (await server.get(f"{RBAC}/clusterrolebindings/system:kube-dns"))["subjects"]


async def test_a_binding_to_another_role_is_replaced(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    name = "system:monitoring"
    async with open_server(store, loops=True) as server:
        binding = await server.get(f"{RBAC}/clusterrolebindings/{name}")
        (await server.ask("DELETE", f"{RBAC}/clusterrolebindings/{name}")).ok()
        other = {"metadata": binding["metadata"], "roleRef": {**binding["roleRef"], "name": "view"}}
        del other["metadata"]["resourceVersion"]
        await server.post(f"{RBAC}/clusterrolebindings", other)
    async with open_server(store, loops=True) as server:
        actual = await server.get(f"{RBAC}/clusterrolebindings/{name}")
        assert actual["roleRef"]["name"] == name
        assert actual["subjects"] == binding["subjects"]


async def test_aggregated_roles_follow_their_parts(autojump_clock: MockClock) -> None:
    async with open_server(loops=True, controllers=AGGREGATION) as server:
        await wait_all_tasks_blocked()
        admin = await rules_of(server, "admin")
        assert {"verbs": ["create"], "apiGroups": [""], "resources": ["pods/eviction"]} in admin  # by way of edit
        assert all(each in admin for each in await rules_of(server, "view"))
        part = role("widgets-viewer", rule("get", resource="widgets"), labels={policy.AGGREGATE + "view": "true"})
        await server.post(f"{RBAC}/clusterroles", part)
        await wait_all_tasks_blocked()
        assert rule("get", resource="widgets") in await rules_of(server, "admin")
        await server.ask("DELETE", f"{RBAC}/clusterroles/widgets-viewer")
        await wait_all_tasks_blocked()
        assert rule("get", resource="widgets") not in await rules_of(server, "admin")


async def test_a_binding_takes_effect_at_once(autojump_clock: MockClock) -> None:
    async with open_server(loops=True) as server:
        pods = "/api/v1/namespaces/default/pods"
        message = (await server.ask("GET", pods, token=JOE)).refused(403)["message"]
        assert message == (
            'pods is forbidden: User "joe" cannot list resource "pods" in API group "" in the namespace "default"'
        )
        reference = {"apiGroup": policy.GROUP, "kind": "ClusterRole", "name": "system:aggregate-to-view"}
        subjects = [{"apiGroup": policy.GROUP, "kind": "Group", "name": "developers"}]
        binding = {"metadata": {"name": "dev"}, "roleRef": reference, "subjects": subjects}
        await server.post(f"{RBAC}/namespaces/default/rolebindings", binding)
        (await server.ask("GET", pods, token=JOE)).ok()
        (await server.ask("GET", "/api/v1/namespaces/kube-system/pods", token=JOE)).refused(403)
        (await server.ask("DELETE", f"{RBAC}/namespaces/default/rolebindings/dev")).ok()
        (await server.ask("GET", pods, token=JOE)).refused(403)
        rows = [row for row in server.log.store.rows(after=0) if row.key.name == "dev"]
        assert [row.operation for row in rows] == [Operation.CREATE, Operation.DELETE]


async def test_who_reads_a_namespace_reads_its_revisions(autojump_clock: MockClock) -> None:
    """The contents of objects that they may not read stay hidden."""
    async with open_server(loops=True, controllers=AGGREGATION) as server:
        await wait_all_tasks_blocked()
        revisions = "/apis/history.kubechronicle.dev/v1/namespaces/default/revisions"
        (await server.ask("GET", revisions, token=JOE)).refused(403)
        core = "/api/v1/namespaces/default"
        await server.post(f"{core}/secrets", {"metadata": {"name": "s"}, "stringData": {"password": "x"}})
        await server.post(f"{core}/configmaps", {"metadata": {"name": "c"}, "data": {"color": "red"}})
        reference = {"apiGroup": policy.GROUP, "kind": "ClusterRole", "name": "view"}
        subjects = [{"apiGroup": policy.GROUP, "kind": "Group", "name": "developers"}]
        await server.post(
            f"{RBAC}/namespaces/default/rolebindings",
            {"metadata": {"name": "dev"}, "roleRef": reference, "subjects": subjects},
        )
        found = (await server.ask("GET", revisions, token=JOE)).ok()["items"]
        by_name = {item["object"]["name"]: item for item in found}
        assert by_name["s"]["redacted"]
        assert "redacted" not in by_name["c"]
        (await server.ask("GET", revisions.replace("default", "kube-system"), token=JOE)).refused(403)


@pytest.mark.parametrize(
    ("held", "wanted", "rules"),
    [
        ([rule("get")], [rule("get")], None),
        ([rule("*")], [rule("get", "list")], None),
        ([rule("get")], [rule("get", "list")], [rule("get"), rule("list")]),
        (None, [rule("get")], [rule("get")]),
    ],
)
def test_roles_are_completed_never_narrowed(held: Any, wanted: Any, rules: Any) -> None:
    metadata = {"name": "r", "labels": {"a": "b"}, "annotations": {policy.AUTOUPDATE: "true"}}
    actual = completed({"metadata": metadata, "rules": held}, {"metadata": metadata, "rules": wanted})
    assert (actual["rules"] if actual else None) == rules


def test_an_aggregated_role_has_each_rule_once_by_name() -> None:
    labels = {"part": "yes"}
    whole = {
        "metadata": {"name": "whole", "labels": labels},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}, {"matchLabels": labels}]},
    }
    roles = {
        "whole": whole,
        "b": role("b", rule("get"), rule("list"), labels=labels),
        "a": role("a", rule("list"), labels=labels),
        "c": role("c", rule("delete")),
    }
    assert finish(aggregated(whole, roles)) == [rule("list"), rule("get")]


async def test_many_rules_are_aggregated_in_steps() -> None:
    """To compare each with all others would take seconds."""
    labels = {"part": "yes"}
    whole = {
        "metadata": {"name": "whole"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": labels}]},
    }
    roles = {
        f"r{number}": role(f"r{number}", *(rule("get", str(number), str(each)) for each in range(1000)), labels=labels)
        for number in range(30)
    }
    with passes_below(0.03):
        assert len(await Pauses().take(aggregated(whole, roles))) == 30_000


@pytest.mark.parametrize("autoupdate", ["false", "true"])
async def test_a_binding_that_was_split_inherits_subjects(autojump_clock: MockClock, autoupdate: str) -> None:
    """A public page stays closed to those that may not discover the API."""
    store = MemoryStore()
    discovery, public = (f"{RBAC}/clusterrolebindings/system:{name}" for name in ("discovery", "public-info-viewer"))
    joe = [{"apiGroup": policy.GROUP, "kind": "User", "name": "joe"}]
    change = {"metadata": {"annotations": {policy.AUTOUPDATE: autoupdate}, "labels": {"x": "y"}}, "subjects": joe}
    async with open_server(store, loops=True) as server:
        default = (await server.get(public))["subjects"]
        await server.patch(discovery, change)
        await server.ask("DELETE", public)
    async with open_server(store, loops=True) as server:
        found = await server.get(public)
        assert found["metadata"]["labels"]["x"] == "y"
        assert found["subjects"] == joe + ([] if autoupdate == "false" else default)
