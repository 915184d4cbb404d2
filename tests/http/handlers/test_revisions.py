"""Revisions as resources: their content, their order, and content hidden for lack of rights."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from in_process import AUTHORIZATION, JOE, InProcess, open_server

API = "/apis/history.kubechronicle.dev/v1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def shop(server: InProcess) -> None:
    """Make a namespace with a scaled Deployment and a changed Secret, and give Joe rights in it."""
    await server.post("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    container = {"name": "web", "image": "nginx:1"}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    web = {"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": spec}
    deployments = "/apis/apps/v1/namespaces/shop/deployments"
    await server.post(deployments, web)
    scaled = {"spec": {"replicas": 5}}
    await server.patch(f"{deployments}/web?fieldManager=hand", scaled)
    secrets = "/api/v1/namespaces/shop/secrets"
    await server.post(secrets, {"metadata": {"name": "key"}, "stringData": {"a": "b"}})
    await server.patch(f"{secrets}/key", {"stringData": {"a": "hush"}})
    await server.delete(f"{deployments}/web")


async def let_joe_list(server: InProcess) -> None:
    """Let Joe list the revisions of the namespace, and get Deployments, but no Secrets."""
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop"
    rules = [
        {"apiGroups": ["history.kubechronicle.dev"], "resources": ["revisions"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
    ]
    await server.post(f"{rbac}/roles", {"metadata": {"name": "auditor"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "auditor"}
    subjects = [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]
    await server.post(f"{rbac}/rolebindings", {"metadata": {"name": "joe"}, "roleRef": role, "subjects": subjects})


async def found(server: InProcess, path: str, *, token: str | None = None, **selectors: str) -> list[dict[str, Any]]:
    query = "&".join(f"{name}={quote(value)}" for name, value in selectors.items())
    answer = await server.get(f"{API}{path}?{query}", **({} if token is None else {"token": token}))
    items: list[dict[str, Any]] = answer["items"]
    return items


def summaries(items: list[dict[str, Any]]) -> list[str]:
    return [f"{item['operation']} {item['object']['resource']}/{item['object']['name']}" for item in items]


async def test_the_changes_of_a_namespace_newest_first(autojump_clock: Any) -> None:
    async with open_server() as server:
        await shop(server)
        items = await found(server, "/namespaces/shop/revisions", fieldSelector="object.name!=kube-root-ca.crt")
        assert summaries(items) == [
            "Delete deployments/web",
            "Update secrets/key",
            "Create secrets/key",
            "Update deployments/web",
            "Create deployments/web",
            *summaries(items)[5:],
        ]
        numbers = [int(item["metadata"]["name"]) for item in items]
        assert numbers == sorted(numbers, reverse=True)
        oldest = (await server.get(f"{API}/namespaces/shop/revisions?order=oldest"))["items"]
        assert [int(item["metadata"]["name"]) for item in oldest] == sorted(
            int(item["metadata"]["name"]) for item in oldest
        )
        update = items[3]
        assert update["summary"] == "spec.replicas: 3 → 5"
        assert update["changed"] == ["spec.replicas"]
        assert update["who"]["username"] == "admin"
        assert update["who"]["fieldManager"] == "hand"
        assert update["request"]["verb"] == "patch"
        assert update["metadata"]["labels"] == {"app": "web"}
        assert "before" not in update
        namespace = await found(server, "/clusterrevisions", fieldSelector="object.name=shop,object.kind=Namespace")
        assert summaries(namespace) == ["Create namespaces/shop"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("object.kind=deployment,operation=Update", ["Update deployments/web"]),
        (
            "object.kind=Deployment,changed=spec.replicas,operation!=Create,operation!=Delete",
            ["Update deployments/web"],
        ),
        ("object.resource=deploy,changed=spec.template", ["Delete deployments/web", "Create deployments/web"]),
        ("who.fieldManager=hand", ["Update deployments/web"]),
        ("who.fieldManager=ha*", ["Update deployments/web"]),
        ("object.apiVersion=apps/v1,request.verb=delete", ["Delete deployments/web"]),
        ("who.username=nobody", []),
        ("object.name=web,revision.to=1", []),
        ("object.name=key,time.from=1h", ["Update secrets/key", "Create secrets/key"]),
        ("object.name=key,time.to=2020-01-01", []),
    ],
)
async def test_field_selectors(autojump_clock: Any, selector: str, expected: list[str]) -> None:
    async with open_server() as server:
        await shop(server)
        assert summaries(await found(server, "/namespaces/shop/revisions", fieldSelector=selector)) == expected


async def test_labels_are_those_of_then(autojump_clock: Any) -> None:
    async with open_server() as server:
        await shop(server)
        items = await found(server, "/revisions", labelSelector="app=web")
        assert summaries(items) == ["Delete deployments/web", "Update deployments/web", "Create deployments/web"]


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("object.nam=web", '"object.nam" is not a known field selector of revisions'),
        ("object.name=web,object.kind=Deploymnt", "did you mean Deployment?"),
        ("object.resource=nothing", "there is no such kind, nor was there in the history that is kept"),
        ("noise=loud", "must be noise=hidden or noise=shown"),
        ("operation=Upsert", "must be Create, Update or Delete"),
        ("time.from=tomorrow", "is no moment"),
        ("revision.from=x", "must be a revision"),
        ("revision.from!=4", "takes = only"),
    ],
)
async def test_wrong_selectors(autojump_clock: Any, selector: str, message: str) -> None:
    async with open_server() as server:
        answer = await server.ask("GET", f"{API}/revisions?fieldSelector={quote(selector)}")
        assert message in answer.refused(400)["message"]


async def test_one_revision_has_all_fields(autojump_clock: Any) -> None:
    async with open_server() as server:
        await shop(server)
        [update] = await found(server, "/revisions", fieldSelector="who.fieldManager=hand")
        name = update["metadata"]["name"]
        whole = await server.get(f"{API}/namespaces/shop/revisions/{name}")
        assert whole["diff"][-1] == {"op": "replace", "path": "/spec/replicas", "value": 5, "old": 3}
        assert (whole["before"]["spec"]["replicas"], whole["after"]["spec"]["replicas"]) == (3, 5)
        for path in (
            f"/namespaces/default/revisions/{name}",
            f"/clusterrevisions/{name}",
            "/namespaces/shop/revisions/x",
        ):
            answer = (await server.ask("GET", f"{API}{path}")).refused(404)
            assert answer["reason"] == "NotFound"


async def test_pages(autojump_clock: Any) -> None:
    async with open_server() as server:
        await shop(server)
        whole = [item["metadata"]["name"] for item in await found(server, "/revisions")]
        for order in ("newest", "oldest"):
            pages: list[str] = []
            token = ""
            while True:
                answer = await server.get(f"{API}/revisions?limit=2&order={order}&continue={token}")
                pages += [item["metadata"]["name"] for item in answer["items"]]
                token = answer["metadata"].get("continue", "")
                if not token:
                    break
            assert pages == (whole if order == "newest" else whole[::-1])


async def test_unreadable_objects_are_hidden(autojump_clock: Any) -> None:
    async with open_server(authorization=AUTHORIZATION) as server:
        await shop(server)
        assert (await server.ask("GET", f"{API}/namespaces/shop/revisions", token=JOE)).status == 403
        await let_joe_list(server)

        items = await found(server, "/namespaces/shop/revisions", token=JOE, fieldSelector="object.name=key")
        assert summaries(items) == ["Update secrets/key", "Create secrets/key"]
        for item in items:
            assert item["redacted"] is True
            assert not {"changed", "summary", "diff", "before", "after"} & set(item)
            whole = await server.ask("GET", f"{API}/namespaces/shop/revisions/{item['metadata']['name']}", token=JOE)
            assert b"hush" not in whole.body
            assert b"aHVzaA" not in whole.body
        states = await server.get(f"{API}/namespaces/shop/revisions?content=states", token=JOE)
        secrets = [item for item in states["items"] if item["object"]["resource"] == "secrets"]
        assert secrets
        assert all(item["redacted"] and not {"before", "after", "last"} & set(item) for item in secrets)
        # Label and field selectors do not reveal it either.
        assert not await found(
            server, "/namespaces/shop/revisions", token=JOE, fieldSelector="object.name=key,changed=data"
        )
        [update] = await found(
            server, "/namespaces/shop/revisions", token=JOE, fieldSelector="changed=spec.replicas,operation=Update"
        )
        assert update["summary"] == "spec.replicas: 3 → 5"
        assert (await server.ask("GET", f"{API}/revisions", token=JOE)).status == 403
        assert (await server.ask("GET", f"{API}/clusterrevisions", token=JOE)).status == 403


async def test_a_watch_sends_new_revisions(autojump_clock: Any) -> None:
    async with open_server() as server:
        await shop(server)
        path = f"{API}/namespaces/shop/revisions?watch=1&fieldSelector=object.name%3Dlater"
        async with server.watch(path) as stream:
            body = {"metadata": {"name": "later"}, "data": {"a": "b"}}
            await server.post("/api/v1/namespaces/shop/configmaps", body)
            await server.delete("/api/v1/namespaces/shop/configmaps/later")
            events = [await stream.next(), await stream.next()]
        assert [(event["type"], event["object"]["operation"]) for event in events if event] == [
            ("ADDED", "Create"),
            ("ADDED", "Delete"),
        ]


async def test_as_kubectl_shows_them(autojump_clock: Any) -> None:
    async with open_server() as server:
        await shop(server)
        answer = await server.get(
            f"{API}/namespaces/shop/revisions?fieldSelector=who.fieldManager%3Dhand", headers={"accept": TABLE}
        )
        table = answer
        assert [column["name"] for column in table["columnDefinitions"] if not column["priority"]] == [
            "Revision",
            "Time",
            "Verb",
            "User",
            "Object",
            "Changed",
        ]
        cells = table["rows"][0]["cells"]
        assert cells[2:6] == ["patch", "admin", "deployments.apps/web", "spec.replicas: 3 → 5"]


async def test_they_are_there_to_be_read_alone(autojump_clock: Any) -> None:
    async with open_server() as server:
        (await server.ask("POST", f"{API}/namespaces/default/revisions", {"metadata": {"name": "1"}})).refused(405)
        (await server.ask("DELETE", f"{API}/namespaces/default/revisions/1")).refused(405)
        answer = await server.ask("GET", f"{API}/revisions", headers={"accept": "application/vnd.kubernetes.protobuf"})
        assert answer.status == 406


async def test_states_are_the_objects_as_they_are_kept(autojump_clock: Any) -> None:
    async with open_server() as server:
        await shop(server)
        path = f"{API}/namespaces/shop/revisions?content=states&order=oldest&fieldSelector=object.name%3Dweb"
        created, scaled, deleted = (await server.get(path))["items"]
        assert "before" not in created
        assert created["after"]["spec"]["replicas"] == scaled["before"]["spec"]["replicas"] == 3
        assert scaled["after"]["spec"]["replicas"] == deleted["last"]["spec"]["replicas"] == 5
        assert scaled["request"]["uri"].endswith("?fieldManager=hand")
        assert scaled["previousRevision"] == created["metadata"]["name"]
        assert "diff" not in scaled
        assert "after" not in deleted
        labelled = (await server.get(f"{path}&labelSelector=app%3Dweb"))["items"]
        assert labelled == [created, scaled, deleted]


async def test_programs_may_ask_for_a_few_fields(autojump_clock: Any) -> None:
    async with open_server() as server:
        await shop(server)
        path = f"{API}/namespaces/shop/revisions?order=oldest&fieldSelector=object.name%3Dweb"
        fields = "&fields=spec.replicas,metadata.labels&details=none"
        created, scaled, deleted = (await server.get(f"{path}&content=states{fields}"))["items"]
        web = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"app": "web"}}}
        assert created["after"] == scaled["before"] == {**web, "spec": {"replicas": 3}}
        assert scaled["after"] == deleted["before"] == deleted["last"] == {**web, "spec": {"replicas": 5}}
        assert set(scaled["who"]) == {"username"}
        assert not {"uid", "version"} & ({*scaled, *scaled["object"]})
        whole = (await server.get(f"{path}&content=states"))["items"][1]
        kept = ("metadata", "operation", "time", "request", "previousRevision")
        assert [scaled[name] for name in kept] == [whole[name] for name in kept]
        [_, alone, last] = (await server.get(f"{path}&content=after{fields}"))["items"]
        assert alone == {name: value for name, value in scaled.items() if name != "before"}
        assert (last["last"], "before" in last) == (deleted["last"], False)
        [_, other, _] = (await server.get(f"{path}&content=after{fields}&fieldsOf=apps/v1beta1"))["items"]
        assert other["after"] == whole["after"], "another version has its fields elsewhere"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("fields=spec", "fields and details: only for lists with content=states or content=after"),
        ("content=full&details=none", "fields and details: only for lists with content=states or content=after"),
        (
            "content=after&fields=spec&watch=1",
            "fields and details: only for lists with content=states or content=after",
        ),
        ("content=after&details=all", "details=all: must be none, or left out"),
        (
            "content=after&fields=a..b",
            "fields: 'a..b' is no path of a field, as spec.replicas or metadata.labels[app] is",
        ),
    ],
)
async def test_wrong_fields_are_rejected(autojump_clock: Any, query: str, message: str) -> None:
    async with open_server() as server:
        assert (await server.ask("GET", f"{API}/revisions?{query}")).refused(400)["message"] == message


async def test_few_fields_show_no_more_than_the_rights(autojump_clock: Any) -> None:
    async with open_server(authorization=AUTHORIZATION) as server:
        await shop(server)
        await let_joe_list(server)
        path = f"{API}/namespaces/shop/revisions?content=after&fields=data,spec.replicas&details=none"
        items = (await server.get(path, token=JOE))["items"]
        hidden = [item for item in items if item["object"]["resource"] == "secrets"]
        assert len(hidden) == 2
        assert all(item["redacted"] and not {"before", "after", "last"} & set(item) for item in hidden)
