"""An extension API server behind an APIService: proxying, conditions, discovery, over real TLS."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from in_process import JOE, InProcess, open_server

from kubechronicle.actors.loops.api_service_availability import by_objects
from kubechronicle.api.registry.api_services import ServiceReference
from kubechronicle.http.aggregation.openapi import MALFORMED, read_document
from kubechronicle.http.messages import SWITCHED, Request, Response

PATIENCE = 60.0
GROUP = "metrics.example.com"
PATH = f"/apis/{GROUP}/v1"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
LIST = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": f"{GROUP}/v1",
    "resources": [
        {"name": "things", "singularName": "thing", "namespaced": True, "kind": "Thing", "verbs": ["get", "watch"]},
        {"name": "things/status", "singularName": "", "namespaced": True, "kind": "Thing", "verbs": ["get"]},
    ],
}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Extension:
    """The other server. ``requests``: those other than for discovery; ``more``: lets a watch send its second event.

    ``openapi``: its document at /openapi/v2, None: it has none. ``healthy``: it answers at the path of its version;
    otherwise it has aggregated discovery alone.
    """

    def __init__(self) -> None:
        self.openapi: dict[str, Any] | None = None
        self.healthy = True
        self.upgrades = True
        self.requests: list[tuple[Request, bytes]] = []
        self.more = trio.Event()
        self.ended = trio.Event()

    async def __call__(self, request: Request) -> Response:
        if not self.healthy and request.path == "/apis":
            things = {"resource": "things", "scope": "Cluster"}
            made = {"metadata": {"name": GROUP}, "versions": [{"version": "v1", "resources": [things]}]}
            return Response(200, [("content-type", AGGREGATED)], json.dumps({"items": [made]}).encode())
        if request.path == PATH:
            return _json(200 if self.healthy else 500, LIST)
        if request.path == "/openapi/v2" and self.openapi is not None:
            return _json(200, self.openapi)
        if not request.path.startswith(PATH):
            return _json(404, {"kind": "Status"})
        self.requests.append((request, await request.body(1 << 24)))
        if "watch" in request.query_string:
            return Response(200, [("content-type", "application/json")], self._events())
        if request.upgrade is not None and self.upgrades:
            stream = await request.upgrade.accept([("x-hello", "1")])
            await stream.send_all((await stream.receive_some()).upper())
            return SWITCHED
        if request.path.endswith("/moved"):
            return Response(307, [("location", "https://elsewhere.example.com/")])
        return _json(201 if request.method == "POST" else 200, {"kind": "Thing", "got": len(self.requests[-1][1])})

    async def _events(self) -> AsyncIterator[bytes]:
        try:
            yield b'{"type":"ADDED"}\n'
            await self.more.wait()
            yield b'{"type":"DELETED"}\n'
            await trio.sleep_forever()
        finally:
            self.ended.set()


def _json(code: int, body: Any) -> Response:
    return Response(code, [("content-type", "application/json")], json.dumps(body).encode())


@asynccontextmanager
async def aggregating(
    wire: Any, extension: Any, other: dict[str, Any] | None = None, controllers: Any = frozenset(), **spec: Any
) -> AsyncIterator[InProcess]:
    """Run a server in front of the extension. Its certificate names localhost instead of the Service.
    ``other``: fields of the server's plan."""
    started = await wire(extension)
    async with open_server(loops=True, other=other, controllers=controllers) as server:
        service = {"metadata": {"name": "x"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        await server.post("/api/v1/namespaces/default/services", service)
        reference = {"namespace": "default", "name": "x", "port": started.server.port}
        usual = {"group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15}
        trust = {} if "caBundle" in spec else {"insecureSkipTLSVerify": True}
        body = {"metadata": {"name": f"v1.{GROUP}"}, "spec": {**usual, "service": reference, **trust, **spec}}
        await server.post(API_SERVICES, body)
        yield server


async def condition(server: InProcess, reason: str) -> dict[str, Any]:
    """Return the condition Available once it has this reason."""
    async with server.watch(f"{API_SERVICES}?watch=1&fieldSelector=metadata.name=v1.{GROUP}") as events:
        while True:
            event = await events.next()
            assert event is not None
            conditions = event["object"].get("status", {}).get("conditions", [])
            if conditions and conditions[0]["reason"] == reason:
                return dict(conditions[0])


async def discovered(server: InProcess, freshness: str) -> dict[str, Any]:
    """Return the group's version in aggregated discovery once it has this freshness."""
    with trio.fail_after(PATIENCE):
        while True:
            groups = await server.get("/apis", headers={"accept": AGGREGATED})
            for group in groups["items"]:
                if group["metadata"]["name"] == GROUP and group["versions"][0]["freshness"] == freshness:
                    return dict(group["versions"][0])
            await trio.testing.wait_all_tasks_blocked(0.01)


@pytest.fixture
def extension() -> Extension:
    return Extension()


async def test_a_request_is_passed_on_with_its_user(wire: Any, extension: Extension) -> None:
    async with aggregating(wire, extension) as server:
        assert (await condition(server, "Passed"))["message"] == "all checks passed"
        spoofed = {
            "x-remote-user": "root",
            "x-remote-extra-a": "b",
            "x-custom": "kept",
            "connection": "x-hop",
            "x-hop": "1",
        }
        answer = await server.ask("GET", f"{PATH}/namespaces/n/things/a?b=1&a=2", headers=spoofed)
        assert (answer.status, answer.json()) == (200, {"kind": "Thing", "got": 0})
        ((request, _),) = extension.requests
        assert request.query_string == "a=2&b=1"
        fields = dict(request.headers)
        assert fields["x-remote-user"] == "admin"
        assert request.headers.get_all("x-remote-group") == ["system:masters", "system:authenticated"]
        assert fields["x-remote-uid"] == "1"
        assert fields["x-custom"] == "kept"
        assert not {"authorization", "x-remote-extra-a", "x-hop"} & fields.keys()


async def test_a_body_and_a_redirect(wire: Any, extension: Extension) -> None:
    async with aggregating(wire, extension) as server:
        await condition(server, "Passed")
        body = b"x" * (1 << 20)
        headers = {"content-length": str(len(body))}
        answer = await server.ask("POST", f"{PATH}/namespaces/n/things", body, headers=headers)
        assert (answer.status, answer.json()["got"]) == (201, len(body))
        moved = await server.ask("GET", f"{PATH}/namespaces/n/things/moved")
        assert (moved.status, moved.header("location")) == (502, "")


async def test_a_redirect_that_is_passed_on(wire: Any, extension: Extension) -> None:
    async with aggregating(wire, extension, {"rejects_redirects": False}) as server:
        await condition(server, "Passed")
        moved = await server.ask("GET", f"{PATH}/namespaces/n/things/moved")
        assert 300 <= moved.status < 400
        assert moved.header("location")


async def test_a_watch_is_streamed_and_ends_with_its_client(wire: Any, extension: Extension) -> None:
    async with aggregating(wire, extension) as server:
        await condition(server, "Passed")
        async with server.watch(f"{PATH}/things?watch=1") as events:
            assert await events.next() == {"type": "ADDED"}
            extension.more.set()
            assert await events.next() == {"type": "DELETED"}
            assert not extension.ended.is_set()
        with trio.fail_after(PATIENCE):
            await extension.ended.wait()


async def test_discovery_is_merged_and_the_group_kept_while_the_server_is_gone(wire: Any, extension: Extension) -> None:
    async with aggregating(wire, extension) as server:
        await condition(server, "Passed")
        found = await discovered(server, "Current")
        assert [one["resource"] for one in found["resources"]] == ["things"]
        assert found["resources"][0]["subresources"][0]["subresource"] == "status"
        groups = [one["name"] for one in (await server.get("/apis"))["groups"]]
        assert groups[0] == "apiregistration.k8s.io"
        assert groups[-1] == GROUP
        assert (await server.get(f"/apis/{GROUP}"))["preferredVersion"]["groupVersion"] == f"{GROUP}/v1"
        assert PATH in (await server.get("/"))["paths"]

        await server.delete("/api/v1/namespaces/default/services/x")
        missing = await condition(server, "ServiceNotFound")
        assert missing["message"] == 'service/x in "default" is not present'
        answer = await server.ask("GET", f"{PATH}/things")
        assert (answer.status, answer.body) == (503, b"service unavailable\n")
        assert await discovered(server, "Stale") == {"version": "v1", "freshness": "Stale"}
        assert await server.get("/apis/apps/v1/deployments")  # other groups stay
        await server.delete(f"{API_SERVICES}/v1.{GROUP}")
        assert (await server.ask("GET", f"{PATH}/things")).status == 404
        assert (await server.ask("GET", f"/apis/{GROUP}")).status == 404


async def test_a_server_that_is_not_available_is_asked_for_its_discovery(wire: Any, extension: Extension) -> None:
    extension.healthy = False
    async with aggregating(wire, extension) as server:
        await condition(server, "FailedDiscoveryCheck")
        found = await discovered(server, "Current")
        assert [one["resource"] for one in found["resources"]] == ["things"]


async def test_a_server_with_openapi_v2_only_gets_a_v3_document(wire: Any, extension: Extension) -> None:
    thing = {"type": "object", "x-kubernetes-group-version-kind": [{"group": GROUP, "kind": "Thing", "version": "v1"}]}
    operation = {
        "produces": ["application/json"],
        "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/Thing"}}},
    }
    extension.openapi = {
        "swagger": "2.0",
        "info": {"title": "t", "version": "1"},
        "paths": {f"{PATH}/things": {"get": operation}},
        "definitions": {"Thing": thing},
    }
    async with aggregating(wire, extension) as server:
        await discovered(server, "Current")
        url = (await server.get("/openapi/v3"))["paths"][f"apis/{GROUP}/v1"]["serverRelativeURL"]
        answer = await server.ask("GET", url)
        document = answer.json()
        assert document["components"]["schemas"]["Thing"] == thing
        schema = document["paths"][f"{PATH}/things"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/Thing"}
        assert answer.header("cache-control") == "public, immutable"
        tag = {"if-none-match": answer.header("etag")}
        assert (await server.ask("GET", f"/openapi/v3{PATH}", headers=tag)).status == 304
        assert (await server.ask("GET", f"/openapi/v3{PATH}?hash=OLD")).header("location") == url
        protobuf = {"accept": "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"}
        assert b"#/components/schemas/Thing" in (await server.ask("GET", url, headers=protobuf)).body


async def test_openapi_v2_is_merged_and_kept_while_the_server_is_gone(wire: Any, extension: Extension) -> None:
    name = "io.k8s.api.core.v1.Pod"
    schema = {"schema": {"$ref": f"#/definitions/{name}"}, "description": "OK"}
    operation = {"get": {"operationId": "readThing", "responses": {"200": schema}}}
    extension.openapi = {
        "swagger": "2.0",
        "paths": {f"{PATH}/things": operation, "/version/": operation, "/apis/apps/v1/deployments": operation},
        "definitions": {name: {"type": "string"}},
    }
    async with aggregating(wire, extension) as server:
        own = (await server.get("/openapi/v2"))["definitions"][name]
        await condition(server, "Passed")
        answer = await server.ask("GET", "/openapi/v2")
        document = answer.json()
        used = document["paths"][f"{PATH}/things"]["get"]["responses"]["200"]["schema"]
        assert used == {"$ref": f"#/definitions/{name}_v2"}
        assert document["definitions"][f"{name}_v2"] == {"type": "string"}
        assert document["definitions"][name] == own
        assert document["paths"]["/version/"]["get"]["operationId"] != "readThing"
        tag = answer.header("etag")
        assert (await server.ask("GET", "/openapi/v2", headers={"if-none-match": tag})).status == 304
        protobuf = {"accept": "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"}
        assert f"{PATH}/things".encode() in (await server.ask("GET", "/openapi/v2", headers=protobuf)).body

        await server.delete("/api/v1/namespaces/default/services/x")
        await condition(server, "ServiceNotFound")
        assert (await server.ask("GET", "/openapi/v2")).header("etag") == tag
        await server.delete(f"{API_SERVICES}/v1.{GROUP}")
        assert f"{PATH}/things" not in (await server.get("/openapi/v2"))["paths"]


async def test_the_certificate_must_name_the_service(wire: Any, extension: Extension, authority: Any) -> None:
    bundle = base64.b64encode(authority.file.read_bytes()).decode()
    async with aggregating(wire, extension, caBundle=bundle) as server:
        failed = await condition(server, "FailedDiscoveryCheck")
        assert "failed to verify certificate" in failed["message"]
        assert (await server.ask("GET", f"{PATH}/things")).status == 503


class ClientUpgrade:
    """The upgrade of a client, whose end of the connection is ``client``."""

    protocol = "echo"

    def __init__(self) -> None:
        self.client, self._ours = trio.testing.memory_stream_pair()

    async def take_over(self) -> Any:
        return self._ours


async def test_an_upgraded_connection_is_copied(wire: Any, extension: Extension) -> None:
    async with aggregating(wire, extension) as server:
        await condition(server, "Passed")
        request = server.request("GET", f"{PATH}/namespaces/n/things/a")
        upgrade = ClientUpgrade()
        request.upgrade = upgrade  # type: ignore[assignment]
        await upgrade.client.send_all(b"hello")
        with trio.fail_after(PATIENCE):
            assert await server.assembly.application.application(request) is not None
        received = bytes(await upgrade.client.receive_some())
        head, _, rest = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"x-hello: 1" in head
        assert rest or await upgrade.client.receive_some() == b"HELLO"
        assert extension.requests[-1][0].headers["x-remote-user"] == "admin"


async def test_an_answer_that_is_no_upgrade_is_refused(wire: Any, extension: Extension) -> None:
    async with aggregating(wire, extension) as server:
        await condition(server, "Passed")
        request = server.request("GET", f"{PATH}/moved")
        extension.upgrades = False
        request.upgrade = ClientUpgrade()  # type: ignore[assignment]
        with trio.fail_after(PATIENCE):
            answer = await server.assembly.application.application(request)
        assert (answer.status, answer.body) == (503, b"invalid upgrade response: status code 307\n")


async def test_rights_are_checked_before(wire: Any, extension: Extension) -> None:
    async with aggregating(wire, extension) as server:
        await condition(server, "Passed")
        (await server.ask("GET", f"{PATH}/namespaces/n/things/a", token=JOE)).refused(403)
        assert not extension.requests


def test_a_missing_endpoint_is_told() -> None:
    reference = ServiceReference(namespace="n", name="s", port=443)
    service = {"spec": {"ports": [{"port": 443, "name": "https"}]}}
    ready = {"endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"name": "https", "port": 8443}]}
    unready = {**ready, "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]}

    def reason(service: Any, *slices: Any) -> str:
        found = by_objects(reference, service, slices)
        return found.reason if found is not None else ""

    assert reason(None) == "ServiceNotFound"
    assert reason({"spec": {"ports": []}}) == "ServicePortError"
    assert reason(service) == "EndpointsNotFound"
    assert reason(service, unready) == "MissingEndpoints"
    assert reason(service, unready, ready) == ""
    assert reason({"spec": {"type": "ExternalName"}}) == ""


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{", b'{"paths":[1]}', b'{"paths":{},"definitions":[1]}', b'{"paths":' + b"[" * 900 + b"]" * 900 + b"}"],
)
def test_a_malformed_openapi_document_is_refused(body: bytes) -> None:
    with pytest.raises(MALFORMED):
        read_document(body, GROUP, "v1")


def test_a_document_of_another_form_has_no_protobuf_form() -> None:
    item = {"get": {"parameters": [{"in": "header", "name": "x", "type": "string"}], "responses": {}}}
    body = json.dumps({"paths": {f"{PATH}/things": item, "/apis/apps/v1/": {}}}).encode()
    found = read_document(body, GROUP, "v1")
    assert not found.encodable
    assert list(json.loads(found.body)["paths"]) == [f"{PATH}/things"]
