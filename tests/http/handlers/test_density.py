"""The number of revisions over time, and the rights to it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from in_process import AUTHORIZATION, JOE, InProcess, configmap, open_server

API = "/apis/history.kubechronicle.dev/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def made(server: InProcess) -> None:
    """Make three changes in each of two namespaces, one of a namespace, and one by another user."""
    for namespace in ("shop", "bank"):
        await server.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        await server.post(path, configmap("a", namespace))
        await server.patch(f"{path}/a", {"data": {"x": "y"}})
        await server.delete(f"{path}/a")
    await server.patch("/api/v1/namespaces/shop", {"metadata": {"labels": {"x": "y"}}})


def counts(answer: dict[str, Any]) -> dict[str, int]:
    return {one["name"]: one["count"] for one in answer["series"]}


async def test_revisions_are_counted(autojump_clock: Any) -> None:
    async with open_server() as server:
        await made(server)
        for path, expected in {
            "/revisions?summary=density": {"configmaps": 6},
            "/revisions?summary=density&by=namespace": {"bank": 3, "shop": 3},
            "/revisions?summary=density&by=operation": {"Create": 2, "Update": 2, "Delete": 2},
            "/namespaces/shop/revisions?summary=density&by=user": {"admin": 3},
            "/clusterrevisions?summary=density": {"namespaces": 4},
            "/revisions?summary=density&include=clusterrevisions": {"configmaps": 6, "namespaces": 4},
            "/revisions?summary=density&fieldSelector=operation%3DDelete,object.name%3Da": {"configmaps": 2},
            "/revisions?summary=density&fieldSelector=object.kind%3DSecret": {},
            "/revisions?summary=density&fieldSelector=time.from%3D1h,time.to%3D1s": {},
        }.items():
            answer = await server.get(f"{API}{path}&bucket=1d")
            assert (answer["kind"], counts(answer)) == ("RevisionDensity", expected)
            assert answer["total"] == sum(expected.values()) == sum(bucket["count"] for bucket in answer["buckets"])
            assert answer["bucketSeconds"] == 86400


async def test_buckets_begin_at_multiples_of_their_width(autojump_clock: Any) -> None:
    async with open_server() as server:
        await made(server)
        answer = await server.get(f"{API}/revisions?summary=density&bucket=1h")
        assert all(bucket["time"].endswith(":00:00.000000Z") for bucket in answer["buckets"])
        assert 0 < len(answer["buckets"]) < 3
        chosen = await server.get(f"{API}/revisions?summary=density")
        assert chosen["bucketSeconds"] in (1, 5)
        whole = await server.get(f"{API}/revisions?order=oldest")
        newest = whole["metadata"]["resourceVersion"]
        assert answer["metadata"]["resourceVersion"] == newest
        half = whole["items"][2]["metadata"]["name"]
        then = await server.get(f"/history/at/{half}{API}/revisions?summary=density&bucket=1h")
        assert (then["total"], then["metadata"]["resourceVersion"]) == (3, half)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("summary=sum", "must be density"),
        ("summary=density&bucket=x", "must be how long a bucket is"),
        ("summary=density&bucket=5", "must be how long a bucket is"),
        ("summary=density&bucket=0s", "must be how long a bucket is"),
        ("summary=density&by=colour", "must be one of resource, user, namespace, operation"),
        ("summary=density&include=pods", "must be clusterrevisions"),
        ("summary=density&labelSelector=a%3Db", "labels, changed fields and reasons can't be counted by"),
        ("summary=density&fieldSelector=changed%3Dspec", "labels, changed fields and reasons can't be counted by"),
        ("summary=density&fieldSelector=colour%3Dred", "not a known field selector"),
    ],
)
async def test_wrong_questions(autojump_clock: Any, query: str, message: str) -> None:
    async with open_server() as server:
        await made(server)
        answer = await server.ask("GET", f"{API}/revisions?{query}")
        assert message in answer.refused(400)["message"]


async def test_too_many_buckets(autojump_clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubechronicle.actors.history.density.MAX_BUCKETS", 0)
    async with open_server() as server:
        await made(server)
        answer = await server.ask("GET", f"{API}/revisions?summary=density&bucket=1d")
        assert "make them wider, or the time shorter" in answer.refused(400)["message"]


async def test_counting_takes_the_right_to_list(autojump_clock: Any) -> None:
    async with open_server(authorization=AUTHORIZATION) as server:
        await made(server)
        role = {"rules": [{"apiGroups": ["history.kubechronicle.dev"], "resources": ["revisions"], "verbs": ["list"]}]}
        await server.post(f"{RBAC}/clusterroles", {"metadata": {"name": "auditor"}, **role})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "auditor"}
        subjects = [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}]
        binding = {"metadata": {"name": "joe"}, "roleRef": reference, "subjects": subjects}
        summary = "summary=density&bucket=1d"
        shop = f"{API}/namespaces/shop/revisions?{summary}"
        (await server.ask("GET", shop, token=JOE)).refused(403)
        await server.post(f"{RBAC}/namespaces/shop/rolebindings", binding)
        assert counts(await server.get(shop, token=JOE))["configmaps"] == 3
        (await server.ask("GET", f"{API}/revisions?{summary}", token=JOE)).refused(403)
        await server.post(f"{RBAC}/clusterrolebindings", binding)
        assert counts(await server.get(f"{API}/revisions?{summary}", token=JOE))["configmaps"] == 6
        answer = await server.ask("GET", f"{API}/revisions?{summary}&include=clusterrevisions", token=JOE)
        message = answer.refused(403)["message"]
        assert 'cannot list resource "clusterrevisions"' in message
        selected = quote("object.resource=configmaps")
        assert counts(await server.get(f"{API}/revisions?{summary}&fieldSelector={selected}", token=JOE))
