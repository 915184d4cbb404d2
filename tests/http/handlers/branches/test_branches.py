"""/branch/NAME/…: changes that are tried over a past or present state, and that reach nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from branches.paths import BRANCHES, CHANGES, HISTORY, IN, changes, create
from custom.definitions import definition
from custom.serving import CRDS, WIDGETS
from in_process import MAPS, PODS, InProcess, configmap, open_server, pod
from services import CIDRS, SERVICES, SINGLE, cidr

from kubechronicle.api.meta.request_info import split_branch
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.http.handlers.history import ANNOTATION

POLICIES = "/apis/admissionregistration.k8s.io/v1"


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/branch/try/api/v1/pods", ("try", "/api/v1/pods")),
        ("/branch/try", ("try", "/")),
        ("/branch/", ("", "/branch/")),
        ("/branch/try/history/at/7/api", ("try", "/history/at/7/api")),
    ],
)
def test_the_name_is_the_part_after_the_prefix(path: str, parts: tuple[str, str]) -> None:
    assert split_branch(path) == parts


async def test_changes_of_a_branch_stay_in_it(autojump_clock: Any, server: InProcess) -> None:
    await server.post(MAPS, configmap("a", colour="red"))
    base = await create(server)
    before = server.store.reads.applied
    async with server.watch(f"{MAPS}?watch=1&resourceVersion={before}&timeoutSeconds=5") as outside:
        created = await server.post(f"{IN}{MAPS}", configmap("b", colour="blue"))
        patched = await server.patch(f"{IN}{MAPS}/a", {"data": {"colour": "green"}})
        first, second = (int(each["metadata"]["resourceVersion"]) for each in (created, patched))
        assert base < first < second
        assert await server.names(f"{IN}{MAPS}") == ["a", "b"]
        assert await server.names(MAPS) == ["a"]
        assert (await server.get(f"{MAPS}/a"))["data"] == {"colour": "red"}
        assert (await server.get(f"{IN}{MAPS}/a"))["data"] == {"colour": "green"}
        assert await changes(server) == {"a": "Update", "b": "Create"}
        await server.delete(f"{IN}{MAPS}/a")
        assert await outside.rest() == []
    assert await changes(server) == {"a": "Delete", "b": "Create"}
    assert await server.names(MAPS) == ["a"]
    assert server.store.reads.applied == before


async def test_a_branch_begins_at_a_revision_of_the_past(server: InProcess) -> None:
    await server.post(MAPS, configmap("a", colour="red"))
    base = server.store.reads.applied
    await server.delete(f"{MAPS}/a")
    await server.post(MAPS, configmap("c"))
    assert await create(server, revision=base) == base
    assert await server.names(f"{IN}{MAPS}") == ["a"]
    await server.patch(f"{IN}{MAPS}/a", {"data": {"colour": "green"}})
    assert await server.names(MAPS) == ["c"]
    item = next(each for each in (await server.get(CHANGES))["items"] if each["object"]["name"] == "a")
    assert (item["before"]["data"], item["after"]["data"]) == ({"colour": "red"}, {"colour": "green"})
    assert item["username"] == "admin"
    assert await changes(server, query="?against=now") == {"a": "Create"}
    assert (await server.ask("GET", f"{CHANGES}?against=then")).refused(400)


async def test_lists_and_watches_of_a_branch_agree(server: InProcess) -> None:
    await server.post(PODS, pod("p"))
    base = await create(server)
    await server.get(f"{IN}{MAPS}")
    async with server.watch(f"{IN}{MAPS}?watch=1&resourceVersion={base}") as stream:
        for name in ("a", "b", "c"):
            await server.post(f"{IN}{MAPS}", configmap(name))
        await server.delete(f"{IN}{MAPS}/b")
        events = [await stream.event() for _ in range(4)]
        assert [(kind, name) for kind, name, _ in events] == [
            ("ADDED", "a"),
            ("ADDED", "b"),
            ("ADDED", "c"),
            ("DELETED", "b"),
        ]
        listed = await server.get(f"{IN}{MAPS}")
        assert int(listed["metadata"]["resourceVersion"]) == events[-1][2]
    page = await server.get(f"{IN}{MAPS}?limit=1")
    await server.delete(f"{IN}{MAPS}/c")
    rest = await server.get(f"{IN}{MAPS}?limit=1&continue={page['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]
    async with server.watch(f"{IN}{MAPS}?watch=1&resourceVersion={base - 1}") as stream:
        (event,) = await stream.rest()
        assert event["object"]["code"] == 410


async def test_server_side_apply_finds_conflicts_in_a_branch(server: InProcess) -> None:
    await server.post(MAPS, configmap("a", colour="red"))
    await create(server)
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"colour": "blue"}}
    path = f"{IN}{MAPS}/a?fieldManager=helm"
    headers = {"content-type": "application/apply-patch+yaml"}
    refused = (await server.ask("PATCH", path, applied, headers=headers)).refused(409)
    assert refused["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    assert (await server.ask("PATCH", f"{path}&force=true", applied, headers=headers)).ok()["data"] == {
        "colour": "blue"
    }
    stale = {**configmap("a", colour="x"), "metadata": {"name": "a", "resourceVersion": "1"}}
    assert (await server.ask("PUT", f"{IN}{MAPS}/a", stale)).refused(409)


async def test_a_policy_of_a_branch_judges_the_writes_of_the_branch_alone(server: InProcess) -> None:
    await create(server)
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.name != 'bad'", "message": "not bad ones"}],
    }
    await server.post(f"{IN}{POLICIES}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    binding = {"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    await server.post(f"{IN}{POLICIES}/validatingadmissionpolicybindings", binding)
    refused = (await server.ask("POST", f"{IN}{MAPS}", configmap("bad"))).refused(422)
    assert "not bad ones" in refused["message"]
    await server.post(f"{IN}{MAPS}", configmap("good"))
    await server.post(MAPS, configmap("bad"))
    assert (await server.get(f"{POLICIES}/validatingadmissionpolicies"))["items"] == []


async def test_a_definition_of_a_branch_is_served_in_the_branch_alone(server: InProcess) -> None:
    await create(server)
    await server.post(f"{IN}{CRDS}", definition())
    async with server.watch(f"{IN}{CRDS}?watch=1") as stream:
        while (event := await stream.next()) is not None:
            conditions = event["object"].get("status", {}).get("conditions") or ()
            if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
                break
    await server.post(f"{IN}{WIDGETS}", {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}})
    assert await server.names(f"{IN}{WIDGETS}") == ["w"]
    assert "example.com" in {group["name"] for group in (await server.get(f"{IN}/apis"))["groups"]}
    assert "/apis/example.com/v1" not in str(await server.get("/apis"))
    document = await server.get(f"{IN}/openapi/v3")
    assert document["paths"]["apis/example.com/v1"]["serverRelativeURL"].startswith("/branch/try/openapi/v3/")
    assert (await server.ask("GET", WIDGETS)).status == 404
    assert await changes(server, "Widget") == {"w": "Create"}


async def test_deletions_follow_the_rules_of_the_cluster(server: InProcess) -> None:
    await create(server)
    await server.post(f"{IN}{PODS}", pod("loose"))
    await server.post(f"{IN}{PODS}", pod("placed", node="n"))
    await server.delete(f"{IN}{PODS}/loose")
    await server.delete(f"{IN}{PODS}/placed")
    assert (await server.get(f"{IN}{PODS}/placed"))["metadata"]["deletionGracePeriodSeconds"] == 30
    assert await server.names(f"{IN}{PODS}") == ["placed"]
    await server.post(f"{IN}/api/v1/namespaces", {"metadata": {"name": "other"}})
    await server.post(f"{IN}/api/v1/namespaces/other/configmaps", configmap("a", "other"))
    async with server.watch(f"{IN}/api/v1/namespaces?watch=1&fieldSelector=metadata.name=other") as stream:
        await server.delete(f"{IN}/api/v1/namespaces/other")
        while (event := await stream.next()) is not None and event["type"] != "DELETED":
            pass  # the loops of the branch empty the namespace and let it go
    assert "other" not in await server.names("/api/v1/namespaces")
    assert "other" not in (await changes(server, "Namespace"))


async def test_addresses_of_a_branch_are_not_taken_from_the_cluster(server: InProcess) -> None:
    await server.post(CIDRS, cidr("kubernetes", *SINGLE))
    await create(server)
    spec = {"ports": [{"port": 80, "nodePort": 30007}], "clusterIP": "10.96.0.7", "type": "NodePort"}
    mine = await server.post(f"{IN}{SERVICES}", {"metadata": {"name": "s"}, "spec": spec})
    assert (await server.ask("POST", f"{IN}{SERVICES}", {"metadata": {"name": "t"}, "spec": spec})).refused(422)
    theirs = await server.post(SERVICES, {"metadata": {"name": "t"}, "spec": spec})
    assert mine["spec"]["clusterIP"] == theirs["spec"]["clusterIP"] == "10.96.0.7"


async def test_history_in_a_branch_ends_at_its_base(server: InProcess) -> None:
    await server.post(MAPS, configmap("a", colour="red"))
    before = server.store.reads.applied
    await server.delete(f"{MAPS}/a")
    base = await create(server)
    await server.post(f"{IN}{MAPS}", configmap("b"))
    await server.post(MAPS, configmap("later"))
    assert await server.names(f"{IN}/history/at/{before}{MAPS}") == ["a"]
    refused = (await server.ask("GET", f"{IN}/history/at/{base + 1}{MAPS}")).refused(400)
    assert f"ends at its base, revision {base}" in refused["message"]
    answer = await server.ask("GET", f"{IN}{HISTORY}/namespaces/default/revisions?limit=1")
    assert [int(item["metadata"]["name"]) for item in answer.ok()["items"]] == [before + 1]
    assert "kubectl chronicle branch diff try" in answer.header("warning")


@pytest.mark.parametrize(
    ("method", "path", "code", "message"),
    [
        ("POST", f"{PODS}/p/exec?command=ls", 405, "nothing runs in a branch"),
        ("GET", f"{PODS}/p/log", 405, "nothing runs in a branch"),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", 405, "issues no credentials"),
        ("GET", BRANCHES, 405, "a branch has no branches"),
        ("POST", f"{HISTORY}/transactions", 405, "a branch has no transactions"),
        ("POST", f"/history/at/1{MAPS}", 405, "history is read-only"),
        ("GET", "/metrics", 404, ""),
        ("GET", "/apis/nothing.example.com/v1/things", 404, ""),
    ],
)
async def test_requests_that_would_leave_the_branch_are_refused(
    server: InProcess, method: str, path: str, code: int, message: str
) -> None:
    await create(server)
    answer = await server.ask(method, f"{IN}{path}", {} if method == "POST" else None)
    assert answer.status == code
    assert message in answer.body.decode()


async def test_the_audit_event_names_the_branch(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[tuple[str, str]] = []
    monkeypatch.setattr("kubechronicle.http.context.Context.annotate", lambda _, key, value: noted.append((key, value)))
    await create(server)
    await server.get(f"{IN}{MAPS}")
    assert (ANNOTATION, "try") in noted


async def test_any_server_serves_a_branch(autojump_clock: Any) -> None:
    store = MemoryStore()
    async with open_server(store) as one, open_server(store) as other:
        base = await create(one)
        await one.post(f"{IN}{MAPS}", configmap("a"))
        async with other.watch(f"{IN}{MAPS}?watch=1&resourceVersion={base}") as stream:
            assert (await stream.event())[:2] == ("ADDED", "a")
            await one.post(f"{IN}{MAPS}", configmap("b"))
            assert (await stream.event())[:2] == ("ADDED", "b")
        await other.patch(f"{IN}{MAPS}/a", {"data": {"x": "y"}})
        assert (await one.get(f"{IN}{MAPS}/a"))["data"] == {"x": "y"}
        assert (await one.ask("POST", f"{IN}{MAPS}", configmap("a"))).refused(409)
        assert await changes(one) == await changes(other) == {"a": "Create", "b": "Create"}
