"""Objects of extension API servers end with their namespace and with their owners, over real TLS."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from in_process import InProcess, configmap

from kubechronicle.actors.loops.garbage import graph_builder
from kubechronicle.http.messages import Request, Response

from .test_aggregation import API_SERVICES, GROUP, PATIENCE, aggregating, discovered

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "watch"]
PATH = f"/apis/{GROUP}/v1"
SPACES = "/api/v1/namespaces"
CONTROLLERS = frozenset({"namespace", "garbage-collector"})


class Things:
    """An extension API server with one resource. ``objects``: by namespace and name.

    ``verbs``: those in discovery. ``broken``: all but discovery is answered with 500. ``keeps``: deletions do nothing.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.verbs = VERBS
        self.broken = self.keeps = False
        self.changed = trio.Event()

    def put(self, namespace: str, name: str, **metadata: Any) -> None:
        identity = {"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{name}", "resourceVersion": "1"}
        self.objects[namespace, name] = {"kind": "Thing", "metadata": {**identity, **metadata}}

    async def __call__(self, request: Request) -> Response:
        if request.path == PATH:
            resource = {"name": "things", "singularName": "thing", "namespaced": True, "kind": "Thing"}
            resources = [{**resource, "verbs": self.verbs}]
            return answer(200, {"kind": "APIResourceList", "groupVersion": f"{GROUP}/v1", "resources": resources})
        if not request.path.startswith(f"{PATH}/"):
            return answer(404, {"kind": "Status"})
        body = await request.body(1 << 20)
        assert request.headers.get("x-remote-group") == "system:masters"
        if self.broken:
            return answer(500, "out of order")
        parts = request.path.removeprefix(f"{PATH}/").split("/")
        namespace = parts[1] if parts[0] == "namespaces" else ""
        name = parts[3] if len(parts) > 3 else ""
        answered = self._answer(request.method, namespace, name, json.loads(body) if body else {})
        self.changed.set()
        self.changed = trio.Event()
        return answered

    def _answer(self, method: str, namespace: str, name: str, body: dict[str, Any]) -> Response:
        chosen = [place for place in self.objects if not namespace or place[0] == namespace]
        if not name:
            if method == "DELETE" and "deletecollection" not in self.verbs:
                return answer(405, {"kind": "Status", "status": "Failure", "code": 405, "message": "no"})
            listed = [self.objects[place] for place in chosen]
            if method == "DELETE" and not self.keeps:
                for place in chosen:
                    del self.objects[place]
            return answer(200, {"kind": "ThingList", "metadata": {"resourceVersion": "1"}, "items": listed})
        held = self.objects.get((namespace, name))
        if held is None:
            return answer(404, {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "gone"})
        if method == "PATCH":
            assert body["metadata"].pop("uid") == held["metadata"]["uid"]
            held["metadata"] = {key: one for key, one in (held["metadata"] | body["metadata"]).items() if one}
        if method == "DELETE":
            assert body.get("preconditions", {}).get("uid") in (None, held["metadata"]["uid"])
            del self.objects[namespace, name]
        return answer(200, held)


def answer(code: int, body: Any) -> Response:
    return Response(code, [("content-type", "application/json")], json.dumps(body).encode())


async def until_gone(server: InProcess, path: str) -> None:
    """Wait until an object that a control loop deletes is gone."""
    collection, name = path.rsplit("/", 1)
    with trio.fail_after(PATIENCE):
        async with server.watch(f"{collection}?watch=1&fieldSelector=metadata.name={name}") as events:
            held = (await server.ask("GET", path)).status != 404
            while held:
                event = await events.next()
                held = event is None or event["type"] != "DELETED"


async def conditions(server: InProcess, kind: str, state: str) -> str:
    """Return the message of a condition of the namespace ``space`` once it has this state."""
    with trio.fail_after(PATIENCE):
        async with server.watch(f"{SPACES}?watch=1&fieldSelector=metadata.name=space") as events:
            while True:
                event = await events.next()
                assert event is not None
                for one in event["object"]["status"].get("conditions") or ():
                    if (one["type"], one["status"]) == (kind, state):
                        return str(one["message"])


@pytest.mark.parametrize("verbs", [VERBS, [one for one in VERBS if one != "deletecollection"]], ids=["all", "each"])
async def test_a_namespace_ends_with_the_objects_of_other_servers(wire: Any, verbs: list[str]) -> None:
    things = Things()
    things.verbs = verbs
    things.put("space", "a")
    things.put("space", "b")
    things.put("other", "c")
    async with aggregating(wire, things, controllers=CONTROLLERS) as server:
        await discovered(server, "Current")
        await server.post(SPACES, {"metadata": {"name": "space"}})
        await server.delete(f"{SPACES}/space")
        await until_gone(server, f"{SPACES}/space")
        assert list(things.objects) == [("other", "c")]


async def test_objects_that_stay_keep_their_namespace(wire: Any) -> None:
    things = Things()
    things.put("space", "a")
    things.keeps = True
    async with aggregating(wire, things, controllers=CONTROLLERS) as server:
        await discovered(server, "Current")
        await server.post(SPACES, {"metadata": {"name": "space"}})
        await server.delete(f"{SPACES}/space")
        assert await conditions(server, "NamespaceContentRemaining", "True") == (
            f"Some resources are remaining: things.{GROUP} has 1 resource instances"
        )
        assert await conditions(server, "NamespaceDeletionContentFailure", "True") == (
            "Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: space for "
            f"gvr: {GROUP}/v1, Resource=things"
        )
        things.keeps = False
        await until_gone(server, f"{SPACES}/space")


async def test_a_server_that_fails_keeps_the_namespace(wire: Any) -> None:
    things = Things()
    things.broken = True
    async with aggregating(wire, things, controllers=CONTROLLERS) as server:
        await discovered(server, "Current")
        await server.post(SPACES, {"metadata": {"name": "space"}})
        await server.delete(f"{SPACES}/space")
        assert await conditions(server, "NamespaceDeletionContentFailure", "True") == (
            'Failed to delete all resource types, 1 remaining: an error on the server ("\\"out of order\\"") has '
            f"prevented the request from succeeding (deletecollection things.{GROUP})"
        )
        things.broken = False
        await until_gone(server, f"{SPACES}/space")


async def test_a_group_that_cannot_be_discovered_keeps_the_namespace(wire: Any) -> None:
    async with aggregating(wire, Things(), controllers=CONTROLLERS) as server:
        reference = {"namespace": "default", "name": "nowhere"}
        spec = {"group": "gone.example.com", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 1}
        body = {"metadata": {"name": "v1.gone.example.com"}, "spec": {**spec, "service": reference}}
        await server.post(API_SERVICES, body)
        await discovered(server, "Current")
        await server.post(SPACES, {"metadata": {"name": "space"}})
        await server.delete(f"{SPACES}/space")
        assert await conditions(server, "NamespaceDeletionDiscoveryFailure", "True") == (
            "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: "
            "gone.example.com/v1: stale GroupVersion discovery: gone.example.com/v1"
        )
        await server.delete(f"{API_SERVICES}/v1.gone.example.com")
        await until_gone(server, f"{SPACES}/space")


def owned(name: str, owner: dict[str, Any]) -> dict[str, Any]:
    body = configmap(name)
    body["metadata"]["ownerReferences"] = [owner]
    return body


async def test_owners_of_another_server_are_asked_for(wire: Any) -> None:
    things = Things()
    things.put("default", "there")
    owner = {"apiVersion": f"{GROUP}/v1", "kind": "Thing"}
    async with aggregating(wire, things, controllers=CONTROLLERS) as server:
        await discovered(server, "Current")
        maps = f"{SPACES}/default/configmaps"
        await server.post(maps, owned("kept", {**owner, "name": "there", "uid": "uid-default-there"}))
        await server.post(maps, owned("other", {**owner, "name": "there", "uid": "of-another"}))
        await server.post(maps, owned("lost", {**owner, "name": "missing", "uid": "x"}))
        await until_gone(server, f"{maps}/other")
        await until_gone(server, f"{maps}/lost")
        await server.get(f"{maps}/kept")


async def test_dependents_on_another_server_are_deleted_with_their_owner(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_builder, "POLL", 0.05)
    things = Things()
    async with aggregating(wire, things, controllers=CONTROLLERS) as server:
        await discovered(server, "Current")
        maps = f"{SPACES}/default/configmaps"
        references = []
        for name in ("one", "two"):
            made = await server.post(maps, configmap(name))
            references.append({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]})
        things.put("default", "of-one", ownerReferences=references[:1])
        things.put("default", "of-both", ownerReferences=references)
        await server.delete(f"{maps}/one")
        with trio.fail_after(PATIENCE):
            while ("default", "of-one") in things.objects or len(
                things.objects["default", "of-both"]["metadata"]["ownerReferences"]
            ) > 1:
                await things.changed.wait()
        assert things.objects["default", "of-both"]["metadata"]["ownerReferences"] == references[1:]
