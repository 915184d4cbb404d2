"""?summary=bisect: the changes at which a condition began or ceased to hold."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest
from in_process import JOE, MAPS, InProcess, configmap, open_server
from trio.testing import MockClock

from kubechronicle.http.handlers import bisect

API = "/apis/history.kubechronicle.dev/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
RED = "self.data.color == 'red'"


class Story:
    def __init__(self, server: InProcess) -> None:
        self.server = server
        self.at: dict[str, int] = {}

    async def then(self, name: str, change: Any) -> None:
        await change
        self.at[name] = self.server.store.reads.applied

    def path(self, expression: str, *, namespace: str = "default", moment: str = "", **query: str) -> str:
        where = f"namespaces/{namespace}/revisions" if namespace else "revisions"
        parameters = urlencode({"summary": "bisect", "watch": "1", "expression": expression, **query})
        return f"{f'/history/at/{self.at[moment]}' if moment else ''}{API}/{where}?{parameters}"

    async def search(self, expression: str, *, token: str | None = None, **query: str) -> Any:
        """Return the flips (revision, name, holds) and the result."""
        options = {"token": token} if token is not None else {}
        async with self.server.watch(self.path(expression, **query), **options) as stream:
            lines = await stream.rest()
        assert [line["type"] for line in lines].count("RESULT") == 1, lines[-1]
        flips = [
            (int(line["revision"]), line["object"]["name"], line["holds"]) for line in lines if line["type"] == "FLIP"
        ]
        return flips, lines[-1]


@pytest.fixture
async def story(autojump_clock: MockClock) -> AsyncIterator[Story]:
    async with open_server(namespaces=("default", "other")) as server:
        story = Story(server)
        await story.then("blue", server.post(MAPS, configmap("a", color="blue")))
        await story.then("b", server.post(MAPS, configmap("b", color="red")))
        await story.then("red", server.put(f"{MAPS}/a", configmap("a", color="red")))
        await story.then("still", server.put(f"{MAPS}/a", configmap("a", color="red", more="x")))
        await story.then("blue again", server.put(f"{MAPS}/a", configmap("a", color="blue")))
        await story.then("none", server.put(f"{MAPS}/a", configmap("a")))
        await story.then("no b", server.delete(f"{MAPS}/b"))
        await story.then("red again", server.put(f"{MAPS}/a", configmap("a", color="red")))
        yield story


async def test_an_object_flips(story: Story) -> None:
    at = story.at
    flips, result = await story.search(RED, fieldSelector="object.resource=configmaps,object.name=a")
    assert flips == [(at["red"], "a", True), (at["blue again"], "a", False), (at["red again"], "a", True)]
    assert (result["flips"], result["holding"], result["initially"], result["searched"]) == (3, 1, 0, 6)
    assert (result["first"]["revision"], result["ceased"]["revision"]) == (str(at["red"]), str(at["blue again"]))
    assert result["last"]["revision"] == str(at["red again"])
    assert result["first"]["who"]["username"] == "admin"
    assert result["users"] == [{"name": "admin", "flips": 3}]
    assert (result["failed"], result["failure"]["revision"]) == (1, str(at["none"]))
    assert "no such key" in result["failure"]["message"]


async def test_a_kind_flips_by_object_and_a_deletion_ends_it(story: Story) -> None:
    at = story.at
    flips, result = await story.search(RED, namespace="", fieldSelector="object.resource=configmaps")
    assert flips == [
        (at["b"], "b", True),
        (at["red"], "a", True),
        (at["blue again"], "a", False),
        (at["no b"], "b", False),
        (at["red again"], "a", True),
    ]
    assert result["metadata"]["resourceVersion"] == str(at["red again"])
    few, counted = await story.search(RED, namespace="", limit="2", include="clusterrevisions")
    assert len(few) == 2
    assert counted["flips"] == 5


async def test_a_search_begins_with_the_state_at_its_first_revision(story: Story) -> None:
    at = story.at
    for selector in ("object.resource=configmaps,", "object.resource=configmaps,object.name=a,"):
        flips, result = await story.search(RED, fieldSelector=f"{selector}revision.from={at['still']}")
        assert flips[0] == (at["blue again"], "a", False)
        assert result["initially"] == (1 if "name" in selector else 2)
    _, then = await story.search(RED, moment="still", fieldSelector="object.resource=configmaps")
    assert (then["flips"], then["holding"]) == (2, 2)


async def test_conditions_that_cannot_be_searched_are_refused(story: Story) -> None:
    for expression, message in (
        ("", "needs an expression"),
        ("self.", "Syntax error"),
        ("1 + 1", "must evaluate to bool"),
        ("other.x == 1", "undeclared reference"),
    ):
        refused = (await story.server.ask("GET", story.path(expression))).refused(400)
        assert message in refused["message"]
    for selector in ("who.username=jane", "operation=Create", "changed=data", "object.name=a*"):
        refused = (await story.server.ask("GET", story.path("true", fieldSelector=selector))).refused(400)
        assert "all changes of objects" in refused["message"]


async def test_an_expensive_condition_ends_early(story: Story) -> None:
    loop = "[1,2,3,4,5,6,7,8,9,10]"
    nested = f"{loop}.all(a, {loop}.all(b, {loop}.all(c, {loop}.all(d, {loop}.all(e, a + b + c + d + e > 0)))))"
    nested = f"self.metadata.name != '' && {nested}"
    # One evaluation stops at its own limit and counts as failed; all of a chunk together end the search.
    _, result = await story.search(nested, fieldSelector="object.resource=configmaps,object.name=b")
    assert result["failed"] == 1
    for number in range(25):
        await story.server.post(MAPS, configmap(f"m{number}"))
    async with story.server.watch(story.path(nested)) as stream:
        last = (await stream.rest())[-1]
    assert last["type"] == "ERROR"
    assert (last["object"]["code"], "too expensive" in last["object"]["message"]) == (400, True)


async def test_objects_that_the_client_may_not_get_are_left_out(story: Story) -> None:
    server = story.server
    space = f"{RBAC}/namespaces/default"
    rules = [{"apiGroups": ["history.kubechronicle.dev"], "resources": ["revisions"], "verbs": ["list", "watch"]}]
    (await server.ask("GET", story.path(RED), token=JOE)).refused(403)
    await server.post(f"{space}/roles", {"metadata": {"name": "r"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}]
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects}
    await server.post(f"{space}/rolebindings", binding)
    flips, result = await story.search(RED, fieldSelector="object.resource=configmaps", token=JOE)
    assert (flips, result["hidden"], result["flips"]) == ([], 8, 0)


async def test_a_list_streams_the_same(story: Story) -> None:
    response = await story.server.respond("GET", story.path(RED).replace("&watch=1", ""))
    assert not isinstance(response.body, bytes)
    lines = [json.loads(line) for line in b"".join([piece async for piece in response.body]).splitlines()]
    assert lines[-1]["flips"] == 5


async def test_values_of_secrets_are_judged_on_request_only(story: Story) -> None:
    path = "/api/v1/namespaces/default/secrets"
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "aHVzaA=="}
    metadata = {"name": "key", "annotations": applied}
    await story.server.post(path, {"metadata": metadata, "data": {"a": "aHVzaA=="}})
    selector = "object.resource=secrets"
    guess = "self.data.a == 'aHVzaA=='"
    flips, result = await story.search(guess, fieldSelector=selector)
    assert (flips, result["failed"], result["failure"]["message"]) == ([], 1, "no such key: data")
    copied = "self.metadata.annotations.exists(name, self.metadata.annotations[name] == 'aHVzaA==')"
    assert (await story.search(copied, fieldSelector=selector))[1]["flips"] == 0
    shown, _ = await story.search(guess, fieldSelector=selector, values="shown")
    assert [holds for _, _, holds in shown] == [True]
    reads = await story.server.get(f"{API}/namespaces/default/reads")
    assert [item["object"]["name"] for item in reads["items"]] == ["key"]


async def test_searches_at_the_same_time_are_bounded(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisect, "MAX_SEARCHES", 1)
    async with story.server.watch(story.path(RED)) as first:
        assert await first.next() is not None  # it runs until its last line is read
        async with story.server.watch(story.path(RED)) as second:
            [line] = await second.rest()
        assert (line["type"], line["object"]["code"]) == ("ERROR", 429)
        assert (await first.rest())[-1]["type"] == "RESULT"
    assert (await story.search(RED))[1]["flips"] == 5
