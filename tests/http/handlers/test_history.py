"""/history/at/MOMENT/…: the API at a past moment, read-only; rights, rejections, and replay by watches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
import trio
from in_process import JOE, MAPS, PODS, PROTOBUF, InProcess, configmap, open_server, pod
from trio.testing import MockClock

from kubechronicle.api.codecs import protobuf
from kubechronicle.api.history.moments import written
from kubechronicle.api.meta.request_info import split_moment
from kubechronicle.eventlog.memory.store import MemoryStore

TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


class Clock:
    """The log's clock: the real one plus an offset."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def pass_(self, **time: float) -> datetime:
        """Let time pass, and return the time half-way."""
        middle = self() + timedelta(**time) / 2
        self.ahead += timedelta(**time)
        return middle


class Story:
    """Changes an hour apart. ``revision`` and ``moment``: after each change, by its name."""

    def __init__(self, server: InProcess, clock: Clock) -> None:
        self.server, self.clock = server, clock
        self.revision: dict[str, int] = {}
        self.moment: dict[str, str] = {}

    async def then(self, change: str, done: Any) -> None:
        await done
        self.revision[change] = self.server.store.reads.applied
        self.moment[change] = written(self.clock.pass_(hours=1))

    def at(self, change: str, path: str) -> str:
        return f"/history/at/{self.revision[change]}{path}"


@pytest.fixture
async def story(autojump_clock: MockClock) -> AsyncIterator[Story]:
    clock = Clock()
    async with open_server(MemoryStore(now=clock), namespaces=("default", "other")) as server:
        story = Story(server, clock)
        await story.then("nothing", server.get("/api/v1/namespaces"))
        await story.then("blue", server.post(MAPS, configmap("a", labels={"app": "web"}, color="blue")))
        await story.then("b", server.post(MAPS, configmap("b", labels={"app": "web"})))
        await story.then("c", server.post(MAPS, configmap("c")))
        red = configmap("a", labels={"app": "data"}, color="red")
        await story.then("red", server.put(f"{MAPS}/a", red))
        await story.then("no b", server.delete(f"{MAPS}/b"))
        await story.then("pod", server.post(PODS, pod("p", labels={"app": "web"})))
        yield story


def test_a_path_of_history_is_split() -> None:
    assert split_moment("/history/at/-2h/api/v1/pods") == ("-2h", "/api/v1/pods")
    assert split_moment("/history/at/41") == ("41", "/")
    assert split_moment("/history/at/41/") == ("41", "/")
    assert split_moment("/history/at//api/v1/pods") == ("", "/history/at//api/v1/pods")


async def test_objects_and_lists_are_those_of_then(story: Story) -> None:
    server, at = story.server, story.at
    then = await server.get(at("c", f"{MAPS}/a"))
    assert then["data"] == {"color": "blue"}
    assert then["metadata"]["resourceVersion"] == str(story.revision["blue"])
    assert then == (await server.get(at("b", f"{MAPS}/a")))
    assert (await server.ask("GET", at("nothing", f"{MAPS}/a"))).refused(404)["reason"] == "NotFound"
    for change, names in {"nothing": [], "blue": ["a"], "c": ["a", "b", "c"], "no b": ["a", "c"]}.items():
        listed = await server.get(at(change, MAPS))
        assert [item["metadata"]["name"] for item in listed["items"]] == names
        assert listed["metadata"] == {"resourceVersion": str(story.revision[change])}
        assert await server.names(at(change, "/api/v1/configmaps")) == names
    assert await server.names(at("c", f"{MAPS}?labelSelector=app%3Dweb")) == ["a", "b"]
    assert await server.names(at("red", f"{MAPS}?labelSelector=app%3Dweb")) == ["b"]
    assert await server.names(at("red", f"{MAPS}?fieldSelector=metadata.name%3Db")) == ["b"]
    assert await server.names(at("no b", f"{MAPS}?fieldSelector=metadata.name%3Db")) == []
    assert await server.names(at("nothing", "/api/v1/namespaces")) == ["default", "other"]


async def test_every_way_to_name_a_moment(story: Story) -> None:
    server, moment = story.server, story.moment
    zone = datetime.fromisoformat(moment["c"]).astimezone().isoformat()
    ago = int((story.clock() - datetime.fromisoformat(moment["c"])).total_seconds())
    for text in (moment["c"], quote(moment["c"], safe=""), zone, quote(zone), f"-{ago}s", f"{ago}s", moment["c"][:-1]):
        assert (await server.get(f"/history/at/{text}{MAPS}/a"))["data"] == {"color": "blue"}
        assert await server.names(f"/history/at/{text}{MAPS}") == ["a", "b", "c"]
    assert (await server.get(f"/history/at/-0s{MAPS}/a"))["data"] == {"color": "red"}


@pytest.mark.parametrize(
    ("moment", "code", "reason", "said"),
    [
        ("-99d", 410, "Expired", "the oldest moment is {oldest} (revision 1)"),
        ("1999-12-31", 410, "Expired", "1999-12-31 lies before the retained history"),
        ("0", 410, "Expired", "the oldest moment is {oldest} (revision 1)"),
        ("9999-01-01", 400, "BadRequest", "9999-01-01 lies in the future"),
        ("99999", 400, "BadRequest", "revision 99999 lies in the future: the newest is "),
        ("tomorrow", 400, "BadRequest", "'tomorrow' is no moment; name a revision (12345), a time"),
        ("2026-02-30", 400, "BadRequest", "'2026-02-30' is no moment: day is out of range"),
    ],
)
async def test_moments_there_are_not(story: Story, moment: str, code: int, reason: str, said: str) -> None:
    oldest = written((await story.server.log.moment_of(1)).time)
    for path in (MAPS, f"{MAPS}/a", f"{MAPS}?watch=1", "/api/v1/namespaces", "/api/v1/nodes/n"):
        refused = (await story.server.ask("GET", f"/history/at/{moment}{path}")).refused(code)
        assert refused["reason"] == reason
        assert said.format(oldest=oldest) in refused["message"]
    # kubectl requests these first, and would not show the message.
    for path in ("/api", "/apis", "/api/v1", "/openapi/v3", "/version"):
        assert (await story.server.ask("GET", f"/history/at/{moment}{path}")).status == 200


async def test_compacted_moments_are_expired(story: Story) -> None:
    server = story.server
    store = server.log.store
    store.compact(story.revision["c"])
    await server.get("/api/v1/namespaces/default")  # any consistent read applies it
    for moment in (story.revision["b"], story.moment["b"]):
        refused = (await server.ask("GET", f"/history/at/{moment}{MAPS}")).refused(410)
        assert f"(revision {story.revision['c']})" in refused["message"]
    assert await server.names(story.at("c", MAPS)) == ["a", "b", "c"]
    store.compact(store.revision - 1, resource="configmaps")
    await server.get("/api/v1/namespaces/default")
    for path in (MAPS, f"{MAPS}/a", f"{MAPS}?limit=1"):
        refused = (await server.ask("GET", story.at("red", path))).refused(410)
        assert refused["reason"] == "Expired"
        assert "history of configmaps starts later: the oldest moment is 20" in refused["message"]
        assert f"(revision {store.revision - 1})" in refused["message"]
    assert (await server.ask("GET", story.at("red", f"{MAPS}?watch=1"))).refused(410)["reason"] == "Expired"
    async with server.watch(story.at("red", f"{MAPS}?watch=1&resourceVersion={story.revision['red']}")) as watch:
        event = await watch.next()
        assert event is not None
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert await server.names(story.at("red", "/api/v1/namespaces")) == ["default", "other"]


async def test_pages_stick_to_their_revision(story: Story) -> None:
    server = story.server
    ago = int((story.clock() - datetime.fromisoformat(story.moment["c"])).total_seconds())
    found, token = [], ""
    while True:
        page = await server.get(f"/history/at/-{ago}s{MAPS}?limit=1&continue={token}")
        found += [(item["metadata"]["name"], item.get("data")) for item in page["items"]]
        assert page["metadata"]["resourceVersion"] == str(story.revision["c"])
        assert page["metadata"].get("remainingItemCount", 0) == 3 - len(found)
        token = page["metadata"].get("continue", "")
        if not token:
            break
        story.clock.pass_(hours=1)  # now the same text means a later revision
    assert found == [("a", {"color": "blue"}), ("b", None), ("c", None)]


async def test_resource_versions_are_those_of_then(story: Story) -> None:
    server, at, revision = story.server, story.at, story.revision
    for query in ("resourceVersion=0", f"resourceVersion={revision['blue']}"):
        assert await server.names(at("c", f"{MAPS}?{query}")) == ["a", "b", "c"]
        assert (await server.get(at("c", f"{MAPS}/a?{query}")))["data"] == {"color": "blue"}
    exact = f"{MAPS}?resourceVersionMatch=Exact&resourceVersion="
    assert await server.names(at("c", f"{exact}{revision['blue']}")) == ["a"]
    for path in (f"{exact}{revision['red']}", f"{MAPS}/a?resourceVersion={revision['red']}"):
        refused = (await server.ask("GET", at("c", path))).refused(504)
        assert "Too large resource version" in refused["message"]
    # The same without the prefix: any retained revision.
    assert await server.names(f"{exact}{revision['c']}") == ["a", "b", "c"]
    assert await server.names(f"{exact}{revision['c']}&fieldSelector=metadata.name%3Db") == ["b"]
    assert await server.names(f"{exact}{revision['no b']}&fieldSelector=metadata.name%3Db") == []


async def test_every_representation(story: Story) -> None:
    server, at = story.server, story.at
    answer = await server.ask("GET", at("c", f"{MAPS}/a"), headers={"accept": PROTOBUF})
    assert protobuf.decode(answer.body)["data"] == {"color": "blue"}
    answer = await server.ask("GET", at("c", f"{MAPS}/a"), headers={"accept": "application/yaml"})
    assert b"color: blue" in answer.body
    table = await server.get(at("pod", PODS), headers=TABLE)
    assert table["kind"] == "Table"
    assert [table["rows"][0]["cells"][index] for index in (0, 2)] == ["p", "Pending"]


async def test_ages_are_relative_to_the_moment(story: Story) -> None:
    server, revision = story.server, story.revision
    await story.then("later", server.post(PODS, pod("q")))

    async def age(path: str) -> str:
        table = await server.get(path, headers=TABLE)
        return str(table["rows"][0]["cells"][[one["name"] for one in table["columnDefinitions"]].index("Age")])

    moment = datetime.fromisoformat(story.moment["pod"])
    made = (await server.get(f"{PODS}/p"))["metadata"]["creationTimestamp"]
    hours, seconds = divmod(int((moment - datetime.fromisoformat(made)).total_seconds()), 3600)
    assert hours >= 6
    assert await age(f"/history/at/{story.moment['pod']}{PODS}/p") == f"{hours}h{seconds // 60}m"
    assert await age(f"/history/at/{revision['later']}{PODS}/p") != await age(f"{PODS}/p")


async def test_subresources_that_read(story: Story) -> None:
    server = story.server
    apps = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    web = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "w"}}, "template": template}}
    await story.then("one", server.post(apps, web))
    await story.then("five", server.patch(f"{apps}/web", {"spec": {"replicas": 5}}))
    assert (await server.get(story.at("one", f"{apps}/web/scale")))["spec"] == {"replicas": 1}
    assert (await server.get(story.at("five", f"{apps}/web/scale")))["spec"] == {"replicas": 5}
    assert (await server.get(story.at("one", f"{apps}/web/status")))["spec"]["replicas"] == 1


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", MAPS),
        ("PUT", f"{MAPS}/a"),
        ("PATCH", f"{MAPS}/a"),
        ("DELETE", f"{MAPS}/a"),
        ("DELETE", MAPS),
        ("PATCH", f"{MAPS}/a?dryRun=All"),
        ("POST", f"{PODS}/p/eviction"),
        ("POST", f"{PODS}/p/binding"),
        ("PUT", f"{PODS}/p/status"),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token"),
        ("POST", "/api"),
        ("DELETE", "/version"),
    ],
)
async def test_writes_are_rejected(story: Story, method: str, path: str) -> None:
    before = story.server.store.reads.applied
    refused = (await story.server.ask(method, story.at("red", path), {})).refused(405)
    assert refused["reason"] == "MethodNotAllowed"
    assert "history is read-only" in refused["message"]
    assert "kubectl get … -o yaml" in refused["message"]
    restored = "TYPE/NAME" if "/v1/" not in path else "-n default" if path == MAPS else ""
    assert f"kubectl chronicle restore {restored}" in refused["message"]
    if path == f"{MAPS}/a":
        assert f"kubectl chronicle restore configmaps/a -n default --to {story.revision['red']}" in refused["message"]
    assert story.server.store.reads.applied == before


@pytest.mark.parametrize("subresource", ["log", "exec", "attach", "portforward", "proxy"])
async def test_subresources_of_running_containers_are_not_allowed(story: Story, subresource: str) -> None:
    refused = (await story.server.ask("GET", story.at("pod", f"{PODS}/p/{subresource}"))).refused(405)
    assert f"it has no past {subresource}" in refused["message"]


async def test_reviews_are_answered_as_of_then(story: Story) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    groups = ["authorization.k8s.io", "authentication.k8s.io"]
    asks = [{"apiGroups": groups, "resources": ["*"], "verbs": ["create"]}]
    await story.server.post(f"{rbac}/clusterroles", {"metadata": {"name": "asks"}, "rules": asks})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "asks"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}]
    binding = {"metadata": {"name": "asks"}, "roleRef": reference, "subjects": subjects}
    await story.server.post(f"{rbac}/clusterrolebindings", binding)
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body = {"spec": {"resourceAttributes": {"verb": "list", "resource": "configmaps", "namespace": "default"}}}
    before = (await story.server.post(story.at("red", path), body, token=JOE))["status"]["allowed"]
    await let_joe_read(story.server)
    after = (await story.server.post(story.at("red", path), body, token=JOE))["status"]["allowed"]
    now = (await story.server.post(path, body, token=JOE))["status"]["allowed"]
    assert (before, after, now) == (False, False, True)
    review = await story.server.post(
        story.at("red", "/apis/authentication.k8s.io/v1/selfsubjectreviews"), {}, token=JOE
    )
    assert review["status"]["userInfo"]["username"] == "joe"


async def let_joe_read(server: InProcess) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}]
    await server.post(f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}]
    await server.post(f"{rbac}/rolebindings", {"metadata": {"name": "r"}, "roleRef": reference, "subjects": subjects})


async def test_the_present_rights_count(story: Story) -> None:
    server, at = story.server, story.at
    await let_joe_read(server)
    assert await server.names(f"{at('c', MAPS)}") == ["a", "b", "c"]
    assert [item["metadata"]["name"] for item in (await server.get(at("c", MAPS), token=JOE))["items"]] == list("abc")
    for path in ("/api/v1/configmaps", "/api/v1/namespaces/other/configmaps", PODS, "/api/v1/namespaces", "/metrics"):
        now, then = [await server.ask("GET", where, token=JOE) for where in (path, at("c", path))]
        assert (now.status, then.status) == (403, 403)
        assert now.json()["message"] == then.json()["message"]
    # Rights are checked before the request is validated.
    assert (await server.ask("DELETE", at("c", f"{MAPS}/a"), token=JOE)).status == 403
    assert (await server.ask("GET", f"/history/at/yesterday{PODS}", token=JOE)).status == 403
    assert (await server.ask("GET", at("c", MAPS), token="wrong")).status == 401


async def test_discovery_and_documents(story: Story) -> None:
    server, at = story.server, story.at
    for path in ("/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version"):
        assert await server.get(at("red", path)) == await server.get(path)
    aggregated = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    assert (await server.get(at("red", "/apis"), headers=aggregated))["kind"] == "APIGroupDiscoveryList"
    prefix = f"/history/at/{quote(story.moment['red'])}"
    index = await server.get(f"{prefix}/openapi/v3")
    url = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
    assert url.startswith(f"{prefix}/openapi/v3/apis/apps/v1?hash=")
    assert (await server.get(url))["openapi"] == "3.0.0"
    moved = await server.ask("GET", f"{prefix}/openapi/v3/apis/apps/v1?hash=OLD")
    assert (moved.status, moved.header("location")) == (301, url)
    for path in ("/healthz", "/metrics", "/readyz", "/nonesuch", "/apis/none.example/v1/things"):
        assert (await server.ask("GET", at("red", path))).status == 404


async def test_requests_have_the_metrics_of_ordinary_ones(story: Story) -> None:
    labels = {"verb": "LIST", "resource": "configmaps", "scope": "namespace", "code": "200", "version": "v1"}
    labels |= {"group": "", "subresource": "", "dry_run": "", "component": "apiserver"}
    before = await story.server.metric("apiserver_request_total", **labels) or 0
    await story.server.get(story.at("c", MAPS))
    assert await story.server.metric("apiserver_request_total", **labels) == before + 1


# -- watches ----------------------------------------------------------------------------------------------------------


async def test_a_watch_replays_events(story: Story) -> None:
    server, revision = story.server, story.revision
    until = f"until={story.moment['no b']}"
    async with server.watch(story.at("b", f"{MAPS}?watch=1&resourceVersion={revision['b']}&{until}")) as watch:
        events = [(one["type"], one["object"]["metadata"]["name"]) for one in await watch.rest()]
    assert events == [("ADDED", "c"), ("MODIFIED", "a"), ("DELETED", "b")]
    # Without a resourceVersion the state comes first; with selectors objects come and go by them.
    async with server.watch(story.at("b", f"{MAPS}?watch=1&labelSelector=app%3Dweb&{until}")) as watch:
        events = [await watch.event() for _ in range(4)]
        assert await watch.next() is None
    assert events == [
        ("ADDED", "a", revision["blue"]),
        ("ADDED", "b", revision["b"]),
        ("DELETED", "a", revision["red"]),
        ("DELETED", "b", revision["no b"]),
    ]


async def test_a_watch_goes_on_with_the_present(story: Story) -> None:
    server = story.server
    initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with server.watch(story.at("red", f"{MAPS}?watch=1&{initial}")) as watch:
        assert [(await watch.event())[:2] for _ in range(3)] == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
        bookmark = await watch.next()
        assert bookmark is not None
        assert bookmark["object"]["metadata"]["resourceVersion"] == str(story.revision["red"])
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert (await watch.event())[:2] == ("DELETED", "b")
        await server.post(MAPS, configmap("d"))
        assert (await watch.event())[:2] == ("ADDED", "d")


async def test_a_watch_ends_with_a_bookmark(story: Story) -> None:
    path = f"{MAPS}?watch=1&allowWatchBookmarks=true&until={story.revision['no b']}"
    async with story.server.watch(story.at("no b", path)) as watch:
        assert [(await watch.event())[0] for _ in range(3)] == ["ADDED", "ADDED", "BOOKMARK"]
        assert await watch.next() is None  # there are no events
    path = f"{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={story.revision['no b']}&until=-0s"
    async with story.server.watch(story.at("no b", path)) as watch:
        assert await watch.event() == ("BOOKMARK", "", story.revision["pod"])
        assert await watch.next() is None


async def test_a_watch_at_a_pace(story: Story, autojump_clock: MockClock) -> None:
    server, revision = story.server, story.revision
    path = f"{MAPS}?watch=1&resourceVersion={revision['blue']}&speed=60&until={story.moment['no b']}"
    async with server.watch(story.at("blue", path)) as watch:
        began, times = trio.current_time(), []
        while await watch.next():
            times.append(round(trio.current_time() - began))
    assert times == [60, 120, 180, 240]  # an hour each, sixty times as fast
    # A client that reconnects continues at its revision, not at the moment of the watch.
    path = f"{MAPS}?watch=1&resourceVersion={revision['c']}&speed=60&until={story.moment['no b']}"
    async with server.watch(story.at("blue", path)) as watch:
        began = trio.current_time()
        assert (await watch.event())[:2] == ("MODIFIED", "a")
        assert round(trio.current_time() - began) == 60
    # Without an end it continues with the present events.
    path = f"{MAPS}?watch=1&resourceVersion={revision['red']}&speed=3600"
    async with server.watch(story.at("red", path)) as watch:
        assert (await watch.event())[:2] == ("DELETED", "b")
        await server.post(MAPS, configmap("d"))
        assert (await watch.event())[:2] == ("ADDED", "d")


@pytest.mark.parametrize("query", ["speed=0", "speed=-1", "speed=nan", "speed=inf", "speed=fast", "until=later"])
async def test_paces_and_ends_there_are_not(story: Story, query: str) -> None:
    (await story.server.ask("GET", story.at("b", f"{MAPS}?watch=1&{query}"))).refused(400)


async def test_a_drain_ends_replays(story: Story) -> None:
    path = f"{MAPS}?watch=1&resourceVersion={story.revision['blue']}&speed=0.01"
    async with story.server.watch(story.at("blue", path)) as watch:
        story.server.assembly.application.drain.begin()
        assert await watch.rest() == []
