"""Branches: rights, webhooks, bounds, and their end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio
from admission.prepared_webhooks import Hooks, adding, configure, webhook
from branches.paths import BRANCHES, CHANGES, IN, branch, changes, create
from in_process import AUTHORIZATION, JOE, MAPS, PODS, InProcess, configmap, open_server, pod

from kubechronicle.actors.admission.webhook_configurations import Webhook
from kubechronicle.actors.branches import base as branch_base
from kubechronicle.actors.branches import branches as open_branches
from kubechronicle.actors.branches import lifetime
from kubechronicle.actors.branches.lifetime import UNUSED, BranchExpiry
from kubechronicle.eventlog.memory import branches as memory_branches
from kubechronicle.http.handlers.history import _BACKENDS

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SECRETS = "/api/v1/namespaces/default/secrets"


async def grant(server: InProcess, name: str, *rules: dict[str, Any], space: str = "") -> None:
    """Give joe rights, in a namespace or everywhere."""
    cluster = "" if space else "cluster"
    root = f"{RBAC}/namespaces/{space}" if space else RBAC
    await server.post(f"{root}/{cluster}roles", {"metadata": {"name": name}, "rules": list(rules)})
    kind = "Role" if space else "ClusterRole"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    subject = {"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    await server.post(f"{root}/{cluster}rolebindings", body)


USE = {
    "apiGroups": ["history.kubechronicle.dev"],
    "resources": ["branches"],
    "verbs": ["use"],
    "resourceNames": ["try"],
}
LIST = {"apiGroups": ["history.kubechronicle.dev"], "resources": ["branchchanges"], "verbs": ["list"]}
WRITE_MAPS = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}


async def test_the_rights_are_those_of_the_present_and_the_use_of_the_branch(autojump_clock: Any) -> None:
    async with open_server(authorization=AUTHORIZATION) as server:
        await create(server)
        await server.post(f"{IN}{SECRETS}", {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
        await grant(server, "maps", WRITE_MAPS, space="default")
        refused = (await server.ask("GET", f"{IN}{MAPS}", token=JOE)).refused(403)
        assert 'cannot use resource "branches"' in refused["message"]
        await grant(server, "use", USE, LIST)
        await server.post(f"{IN}{MAPS}", configmap("a"), token=JOE)
        assert await server.names(f"{IN}{MAPS}") == ["a"]
        assert (await server.ask("GET", f"{IN}{SECRETS}", token=JOE)).refused(403)
        # A binding that is made in the branch gives no right, neither there nor in the cluster.
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"}
        everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        await server.post(f"{IN}{RBAC}/clusterroles", {"metadata": {"name": "all"}, "rules": [everything]})
        subject = {"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}
        body = {"metadata": {"name": "all"}, "roleRef": reference, "subjects": [subject]}
        await server.post(f"{IN}{RBAC}/clusterrolebindings", body)
        assert (await server.ask("GET", f"{IN}{SECRETS}", token=JOE)).refused(403)
        assert (await server.ask("GET", SECRETS, token=JOE)).refused(403)
        # Changes of objects that a reader may not get are left out, and the reader is told.
        answer = await server.ask("GET", CHANGES, token=JOE)
        assert {each["object"]["name"] for each in answer.ok()["items"]} == {"a"}
        assert "that you may not read are left out" in answer.header("warning")
        assert (await server.ask("POST", BRANCHES, branch("own"), token=JOE)).refused(403)


async def test_a_new_tenant_of_a_namespace_reads_nothing_of_the_earlier_one(autojump_clock: Any) -> None:
    async with open_server(authorization=AUTHORIZATION) as server:
        space = "/api/v1/namespaces/shop"
        await server.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        await server.post(f"{space}/configmaps", configmap("first", "shop"))
        await create(server)
        await server.delete(f"{space}/configmaps/first")
        await server.delete(space)
        await server.put(f"{space}/finalize", {"metadata": {"name": "shop"}, "spec": {"finalizers": []}})
        await server.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        await grant(server, "maps", WRITE_MAPS, space="shop")
        await grant(server, "use", USE, LIST)
        for method, path in (("GET", "configmaps"), ("GET", "configmaps/first"), ("DELETE", "configmaps/first")):
            refused = (await server.ask(method, f"{IN}{space}/{path}", token=JOE)).refused(403)
            assert "older than the namespace shop" in refused["message"]
        await server.delete(f"{IN}{space}/configmaps/first")
        assert (await server.get(CHANGES, token=JOE))["items"] == []


async def test_the_cluster_itself_has_no_changes_of_a_branch(server: InProcess) -> None:
    answer = await server.ask("GET", CHANGES.removeprefix(IN))
    assert answer.ok()["items"] == []
    assert "below /branch/NAME/ alone" in answer.header("warning")


async def test_values_of_secrets_are_masked_among_the_changes(server: InProcess) -> None:
    await server.post(SECRETS, {"metadata": {"name": "s"}, "stringData": {"a": "hidden"}})
    await create(server)
    await server.patch(f"{IN}{SECRETS}/s", {"stringData": {"a": "other"}})
    (item,) = [each for each in (await server.get(CHANGES))["items"] if each["object"]["kind"] == "Secret"]
    values = item["before"]["data"]["a"], item["after"]["data"]["a"]
    assert all(value.startswith("*** (") for value in values)
    assert values[0] != values[1]


async def test_webhooks_are_asked_as_for_dry_runs(server: InProcess, hooks: Hooks) -> None:
    await configure(server, "mutating", webhook("one"))
    hooks.replies["one"] = adding("/data", {"added": "yes"})
    await create(server)
    made = await server.post(f"{IN}{MAPS}", {"metadata": {"name": "a"}})
    assert made["data"] == {"added": "yes"}
    assert [request["dryRun"] for _, request in hooks.asked] == [True]


async def test_a_webhook_with_side_effects_is_never_asked(
    server: InProcess, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Webhook.__init__

    def with_side_effects(self: Webhook, *arguments: Any) -> None:
        make(self, *arguments)
        self.dry_runs = False  # the server takes no new ones, but a log may hold older ones

    monkeypatch.setattr(Webhook, "__init__", with_side_effects)
    await configure(server, "validating", webhook("one"))
    await create(server)
    refused = (await server.ask("POST", f"{IN}{MAPS}", configmap("c"))).refused(400)
    assert "does not support dry run" in refused["message"]
    assert hooks.asked == []


async def test_the_base_is_a_revision_of_the_retained_history(server: InProcess) -> None:
    refused = (await server.ask("POST", BRANCHES, branch("late", 10_000))).refused(422)
    assert "lies in the future" in refused["message"]
    assert (await server.ask("POST", BRANCHES, branch("none", -1))).refused(422)
    base = await create(server)
    other = {**branch("try", base + 1), "metadata": {"name": "try"}}
    refused = (await server.ask("PUT", f"{BRANCHES}/try", other)).refused(422)
    assert "keeps its base" in refused["message"]
    assert (await server.ask("GET", "/branch/none/api/v1/pods")).refused(404)
    await server.post(MAPS, configmap("a"))
    server.log.store.compact(server.store.reads.applied)
    server.assembly.tail.learn(await server.log.head())
    refused = (await server.ask("POST", BRANCHES, branch("early", 1))).refused(422)
    assert "lies before the retained history" in refused["message"]


async def test_the_number_of_branches_is_limited(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "MOST", 2)
    await create(server, "one")
    await create(server, "two")
    refused = (await server.ask("POST", BRANCHES, branch("three"))).refused(403)
    assert "there are 2 branches, and may be 2" in refused["message"]
    await server.delete(f"{BRANCHES}/one")
    await create(server, "three")


async def test_the_branches_open_at_once_are_limited(
    autojump_clock: Any, server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_branches, "MOST_OPEN", 1)
    await create(server, "one")
    await create(server, "two")
    async with server.watch(f"/branch/one{MAPS}?watch=1"):
        await trio.sleep(100)
        refused = (await server.ask("GET", f"/branch/two{MAPS}")).refused(429)
        assert "1 branches are in use on this server" in refused["message"]
    await trio.sleep(100)
    assert await server.names(f"/branch/two{MAPS}") == []


async def test_the_size_of_a_branch_and_of_its_base_is_limited(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(server)
    await server.post(f"{IN}{MAPS}", configmap("a"))
    monkeypatch.setattr(memory_branches, "MOST_CHANGES", 1)
    refused = (await server.ask("POST", f"{IN}{MAPS}", configmap("b"))).refused(413)
    assert "this branch is full" in refused["message"]
    assert await server.names(f"{IN}{MAPS}") == ["a"]
    monkeypatch.setattr(branch_base, "MOST_OBJECTS", 1)
    await create(server, "large")
    refused = (await server.ask("GET", f"/branch/large{MAPS}")).refused(413)
    assert "a branch may begin with 1 objects" in refused["message"]


async def test_the_deletion_of_a_branch_ends_its_watches_and_drops_its_changes(server: InProcess) -> None:
    await create(server)
    await server.post(f"{IN}{MAPS}", configmap("a"))
    async with server.watch(f"{IN}{MAPS}?watch=1&resourceVersion=0") as stream:
        assert (await stream.event())[:2] == ("ADDED", "a")
        await server.delete(f"{BRANCHES}/try")
        (event,) = await stream.rest()
        assert event["object"]["code"] == 410
    assert (await server.ask("GET", f"{IN}{MAPS}")).refused(404)
    await create(server)
    assert await server.names(f"{IN}{MAPS}") == []  # another branch of the same name
    table = server.log.branches
    assert len(await table.unused_since()) == 2
    assert await BranchExpiry(server.store).expire(datetime.now(UTC))
    assert len(await table.unused_since()) == 1


async def test_a_branch_that_nobody_uses_is_deleted_in_the_end(server: InProcess) -> None:
    await create(server)
    await server.post(f"{IN}{MAPS}", configmap("a"))
    expiry, now = BranchExpiry(server.store), datetime.now(UTC)
    await expiry.expire(now + UNUSED - timedelta(minutes=1))
    assert await server.names(BRANCHES) == ["try"]
    await expiry.expire(now + UNUSED + timedelta(minutes=1))
    assert await server.names(BRANCHES) == []


async def test_an_idle_branch_is_closed_and_opened_again_with_its_changes(
    autojump_clock: Any, server: InProcess
) -> None:
    await create(server)
    await server.post(f"{IN}{MAPS}", configmap("a"))
    (opened,) = [each for each in _BACKENDS if not each.closed]
    await trio.sleep(open_branches.CLOSE_AFTER + 2 * open_branches.SWEEP)
    assert opened.closed
    assert await server.names(f"{IN}{MAPS}") == ["a"]
    assert await changes(server) == {"a": "Create"}


async def test_an_erasure_of_history_drops_the_changes_of_branches(server: InProcess) -> None:
    await create(server)
    await server.post(f"{IN}{MAPS}", configmap("a"))
    server.log.branches.erase()
    server.assembly.views._note_erasure()  # as an entry of an erasure does
    refused = (await server.ask("GET", f"{IN}{MAPS}")).refused(410)
    assert "dropped when contents of history were erased" in refused["message"]


async def test_objects_that_were_loaded_with_the_branch_are_shared_with_the_cluster(server: InProcess) -> None:
    await server.post(PODS, pod("p"))
    await create(server)
    await server.get(f"{IN}{PODS}")
    (opened,) = [each for each in _BACKENDS if not each.closed]
    assert opened.store.reads.peek("pods", "default", "p") is server.store.reads.peek("pods", "default", "p")
