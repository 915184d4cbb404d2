"""?summary=rights: who was allowed to at a moment, since when, until when, and by whose change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest
from in_process import JOE, InProcess, open_server
from trio.testing import MockClock

from kubechronicle.http.authorization.configuration import of_modes
from kubechronicle.http.authorization.current_authorizers import AuthorizationPlan

API = "/apis/history.kubechronicle.dev/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SHOP = f"{RBAC}/namespaces/default"
GROUP = "rbac.authorization.k8s.io"
DELETE_PODS = {"verb": "delete", "resource": "pods"}


def role(name: str, *verbs: str, groups: str = "", resources: str = "pods") -> dict[str, Any]:
    rules = [{"apiGroups": [groups], "resources": [resources], "verbs": list(verbs)}]
    return {"metadata": {"name": name}, "rules": rules}


def binding(name: str, kind: str, role: str, *subjects: str) -> dict[str, Any]:
    """Return a binding. A subject is ``User uma``, ``Group ops`` or ``ServiceAccount default/ci``."""
    made = []
    for subject in subjects:
        of, _, who = subject.partition(" ")
        if of == "ServiceAccount":
            namespace, _, who = who.partition("/")
            made.append({"kind": of, "name": who, "namespace": namespace})
        else:
            made.append({"apiGroup": GROUP, "kind": of, "name": who})
    return {"metadata": {"name": name}, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": made}


class Story:
    def __init__(self, server: InProcess) -> None:
        self.server = server
        self.at: dict[str, int] = {}

    async def then(self, name: str, change: Any) -> None:
        await change
        self.at[name] = self.server.store.reads.applied

    async def ask(self, moment: str, /, *, namespace: str = "default", **query: Any) -> Any:
        return await self.answer(moment, namespace, **query)

    async def answer(self, moment: str, namespace: str, /, *, token: str | None = None, **query: Any) -> Any:
        where = f"namespaces/{namespace}/revisions" if namespace else "clusterrevisions"
        parameters = urlencode({"summary": "rights", **query}, doseq=True)
        prefix = f"/history/at/{self.at[moment]}" if moment else ""
        options = {"token": token} if token is not None else {}
        return await self.server.ask("GET", f"{prefix}{API}/{where}?{parameters}", **options)


@pytest.fixture
async def story(autojump_clock: MockClock) -> AsyncIterator[Story]:
    async with open_server(namespaces=("default", "other")) as server:
        story = Story(server)
        await story.then("nothing", server.get("/version"))
        await story.then("role", server.post(f"{SHOP}/roles", role("r", "delete")))
        subjects = ("User uma", "Group ops", "ServiceAccount default/ci")
        await story.then("bound", server.post(f"{SHOP}/rolebindings", binding("b", "Role", "r", *subjects)))
        await story.then("wide", server.post(f"{RBAC}/clusterroles", role("wide", "delete")))
        await story.then(
            "both", server.post(f"{RBAC}/clusterrolebindings", binding("w", "ClusterRole", "wide", "User uma"))
        )
        await story.then("unrelated", server.post(f"{RBAC}/namespaces/other/roles", role("r", "delete")))
        await story.then("one", server.delete(f"{SHOP}/rolebindings/b"))
        await story.then("none", server.put(f"{RBAC}/clusterroles/wide", role("wide", "list")))
        await story.then("again", server.put(f"{RBAC}/clusterroles/wide", role("wide", "delete", "list")))
        yield story


def interval(found: dict[str, Any]) -> tuple[int, int]:
    """Return the revisions of the turning points; 0: there is none."""
    return int(found["since"].get("revision", 0)), int(found.get("until", {}).get("revision", 0))


async def test_a_user_has_a_right_since_one_change_until_another(story: Story) -> None:
    at = story.at
    for moment, allowed, since, until in (
        ("nothing", False, 0, at["bound"]),
        ("role", False, 0, at["bound"]),
        ("bound", True, at["bound"], at["none"]),
        ("both", True, at["bound"], at["none"]),
        ("one", True, at["bound"], at["none"]),
        ("none", False, at["none"], at["again"]),
        ("again", True, at["again"], 0),
    ):
        found = (await story.ask(moment, user="uma", **DELETE_PODS)).ok()
        assert (found["allowed"], *interval(found)) == (allowed, since, until), moment
        assert found["metadata"]["resourceVersion"] == str(at[moment])
    found = (await story.ask("both", user="uma", **DELETE_PODS)).ok()
    assert found["through"] == [
        {
            "binding": {"kind": "ClusterRoleBinding", "name": "w"},
            "role": {"kind": "ClusterRole", "name": "wide"},
        },
        {
            "binding": {"kind": "RoleBinding", "namespace": "default", "name": "b"},
            "role": {"kind": "Role", "namespace": "default", "name": "r"},
        },
    ]
    assert found["since"]["who"]["username"] == "admin"
    assert found["since"]["object"] == {
        "resource": "rolebindings",
        "group": GROUP,
        "namespace": "default",
        "name": "b",
    }
    assert found["until"]["operation"] == "Update"
    never = (await story.ask("", user="nobody", **DELETE_PODS)).ok()
    assert (never["allowed"], never["since"]) == (False, {"always": True})


async def test_who_can(story: Story) -> None:
    found = (await story.ask("both", **DELETE_PODS)).ok()
    assert [(each["kind"], each["name"], *interval(each)) for each in found["subjects"]] == [
        ("Group", "ops", story.at["bound"], story.at["one"]),
        ("User", "uma", story.at["bound"], story.at["none"]),
        ("User", "system:serviceaccount:default:ci", story.at["bound"], story.at["one"]),
    ]
    cluster = (await story.ask("both", namespace="", **DELETE_PODS)).ok()
    assert [(each["name"], *interval(each)) for each in cluster["subjects"]] == [
        ("uma", story.at["both"], story.at["none"])
    ]
    assert (await story.ask("none", **DELETE_PODS)).ok()["subjects"] == []


async def test_groups_are_those_of_the_users_last_change(story: Story) -> None:
    for number in ("1", "2"):
        body = {"metadata": {"name": f"m{number}"}}
        group = "ops" if number == "1" else "guests"
        headers = {"impersonate-user": "olga", "impersonate-group": group}
        await story.server.post(f"{RBAC}/clusterroles", role("maps", "create", resources="configmaps"))
        await story.server.post(f"{RBAC}/clusterrolebindings", binding("maps", "ClusterRole", "maps", f"Group {group}"))
        await story.then(
            f"olga {number}", story.server.post("/api/v1/namespaces/default/configmaps", body, headers=headers)
        )
        await story.server.delete(f"{RBAC}/clusterroles/maps")
        await story.server.delete(f"{RBAC}/clusterrolebindings/maps")
    await story.then("back", story.server.post(f"{SHOP}/rolebindings", binding("b", "Role", "r", "Group ops")))
    found = (await story.ask("olga 1", user="olga", **DELETE_PODS)).ok()
    assert found["groups"] == ["ops", "system:authenticated"]
    assert found["groupsRevision"] == str(story.at["olga 1"])
    found = (await story.ask("back", user="olga", **DELETE_PODS)).ok()
    assert (found["groups"], found["allowed"]) == (["guests", "system:authenticated"], False)
    named = (await story.ask("back", user="olga", userGroups='["ops"]', **DELETE_PODS)).ok()
    assert (named["allowed"], named["groupsFrom"]) == (True, "request")
    account = (await story.ask("bound", user="system:serviceaccount:default:ci", **DELETE_PODS)).ok()
    assert account["allowed"]


async def test_questions_need_rights(story: Story) -> None:
    list_revisions = role("h", "list", groups="history.kubechronicle.dev", resources="revisions")
    await story.server.post(f"{SHOP}/roles", list_revisions)
    (await story.ask("", token=JOE, self="true", **DELETE_PODS)).refused(403)
    await story.server.post(f"{SHOP}/rolebindings", binding("h", "Role", "h", "User joe"))
    own = (await story.ask("", token=JOE, self="true", **DELETE_PODS)).ok()
    assert (own["user"], own["allowed"], own["groupsFrom"]) == ("joe", False, "credential")
    refused = (await story.ask("", token=JOE, user="uma", **DELETE_PODS)).refused(403)
    assert "localsubjectaccessreviews" in refused["message"]
    refused = (await story.ask("", token=JOE, **DELETE_PODS)).refused(403)
    assert "clusterroles" in refused["message"]
    reviews = role("reviews", "create", groups="authorization.k8s.io", resources="localsubjectaccessreviews")
    await story.server.post(f"{SHOP}/roles", reviews)
    await story.server.post(f"{SHOP}/rolebindings", binding("reviews", "Role", "reviews", "User joe"))
    found = (await story.ask("", token=JOE, user="uma", **DELETE_PODS)).ok()
    assert found["since"]["redacted"]  # he may not list clusterrevisions
    assert "who" not in found["since"]


@pytest.mark.parametrize("query", [{}, {"verb": "get"}, {"verb": "get", "resource": "pods", "path": "/version"}])
async def test_an_incomplete_question_is_refused(story: Story, query: dict[str, str]) -> None:
    refused = (await story.ask("", **query)).refused(400)
    assert "needs a verb" in refused["message"]


async def test_rights_that_rbac_does_not_decide_have_no_turning_points(autojump_clock: MockClock) -> None:
    plan = AuthorizationPlan(configured=of_modes(("AlwaysAllow",)))
    async with open_server(authorization=plan) as server:
        found = (await Story(server).ask("", user="uma", **DELETE_PODS)).ok()
        assert (found["allowed"], found["authorizers"]) == (True, ["AlwaysAllow"])
        assert "since" not in found
        masters = (await Story(server).ask("", user="m", userGroups='["system:masters"]', **DELETE_PODS)).ok()
        assert masters["allowed"]
