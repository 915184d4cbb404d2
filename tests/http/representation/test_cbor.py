"""Requests and answers in CBOR through the handlers, with the feature gate CBORServingAndStorage and without."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from custom.definitions import definition
from custom.serving import WIDGETS, define, serving
from in_process import MAPS, Answer, InProcess, configmap, open_server
from trio.testing import MockClock

from kubechronicle.api.codecs import cbor, cbor_writer
from kubechronicle.api.features.gates import FeatureGates

GATES = FeatureGates(given={"CBORServingAndStorage": True})
CBOR = "application/cbor"
ASKED = {"accept": CBOR}
SENT = {"content-type": CBOR, "accept": CBOR}
SECRETS = "/api/v1/namespaces/default/secrets"


def shown(answer: Answer) -> Any:
    """Return the object of an answer in CBOR."""
    assert answer.header("content-type") == CBOR
    assert answer.body.startswith(cbor_writer.PREFIX)
    return cbor.decode_value(answer.body)


async def send(server: InProcess, data: str, query: str = "") -> Answer:
    """Create a ConfigMap from base64."""
    return await server.ask("POST", f"{MAPS}{query}", base64.b64decode(data), headers={"content-type": CBOR})


async def test_objects_are_written_and_read() -> None:
    async with open_server(features=GATES) as server:
        created = await server.ask("POST", MAPS, cbor_writer.encode(configmap("a", k="v")), headers=SENT)
        assert created.status == 201
        obj = shown(created)
        assert obj == await server.get(f"{MAPS}/a")
        obj["data"]["k"] = "w"
        replaced = shown(await server.ask("PUT", f"{MAPS}/a", cbor_writer.encode(obj), headers=SENT))
        assert replaced["data"] == {"k": "w"}
        assert shown(await server.ask("GET", f"{MAPS}/a", headers=ASKED)) == replaced
        options = cbor_writer.encode({"preconditions": {"uid": "other"}})
        assert shown(await server.ask("DELETE", f"{MAPS}/a", options, headers=SENT))["reason"] == "Conflict"
        assert (
            shown(await server.ask("DELETE", f"{MAPS}/a", cbor_writer.encode({}), headers=SENT))["status"] == "Success"
        )
        assert shown(await server.ask("GET", f"{MAPS}/a", headers=ASKED))["code"] == 404


async def test_bytes_of_a_secret_are_base64_or_marked() -> None:
    async with open_server(features=GATES) as server:
        secret: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s"},
            "data": {"a": "aGk="},
        }
        sent = cbor_writer.encode(secret).replace(b"\x44aGk=", b"\xd6\x42hi")
        assert b"\xd6\x42hi" in sent
        created = shown(await server.ask("POST", SECRETS, sent, headers=SENT))
        assert created["data"] == {"a": "aGk="}


async def test_lists_tables_and_metadata() -> None:
    async with open_server(features=GATES) as server:
        for name in ("a", "b"):
            await server.post(MAPS, configmap(name))
        for accept in (
            "", ";as=Table;g=meta.k8s.io;v=v1", ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        ):  # fmt: skip
            for target in (MAPS, f"{MAPS}?labelSelector=absent", f"{MAPS}?limit=1"):
                plain = await server.get(target, headers={"accept": f"application/json{accept}"})
                listed = shown(await server.ask("GET", target, headers={"accept": f"{CBOR}{accept}"}))
                plain["metadata"].pop("continue", None)
                listed["metadata"].pop("continue", None)
                assert listed == plain


async def test_a_watch_is_a_sequence(autojump_clock: MockClock) -> None:
    async with open_server(features=GATES) as server:
        await server.post(MAPS, configmap("a"))
        target = f"{MAPS}?watch=1&timeoutSeconds=5&sendInitialEvents=true&allowWatchBookmarks=true"
        target += "&resourceVersionMatch=NotOlderThan"
        for accept in (CBOR, f"{CBOR};stream=watch", f"{CBOR};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"):
            async with server.watch(target, headers={"accept": accept}) as watch:
                assert watch.response.header("content-type") == "application/cbor-seq"
                found = b"".join([chunk async for chunk in watch.chunks])
            kinds = [(each["type"], each["object"]["metadata"].get("name", "")) for each in _sequence(found)]
            assert ("ADDED", "a") in kinds
            assert kinds[-1][0] == "BOOKMARK"


def _sequence(data: bytes) -> list[Any]:
    """Return the items of a sequence (RFC 8742), each an event with the mark of CBOR."""
    head = cbor_writer.PREFIX + b"\xa2\x44type"
    return [cbor.decode_value(head + part) for part in data.split(head)[1:]]


async def test_apply_in_cbor() -> None:
    async with open_server(features=GATES) as server:
        headers = {"content-type": "application/apply-patch+cbor", "accept": CBOR}
        body = cbor_writer.encode(configmap("a", k="v"))
        made = await server.ask("PATCH", f"{MAPS}/a?fieldManager=m", body, headers=headers)
        assert (made.status, shown(made)["data"]) == (201, {"k": "v"})
        entry = shown(made)["metadata"]["managedFields"][0]
        assert (entry["manager"], entry["operation"]) == ("m", "Apply")
        bad = await server.ask("PATCH", f"{MAPS}/a?fieldManager=m", b"\xff", headers=headers)
        assert shown(bad)["message"] == 'error decoding patch: cbor: unexpected "break" code'
        merge = await server.ask("PATCH", f"{MAPS}/a", b"", headers={"content-type": "application/merge-patch+cbor"})
        merge.refused(415)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("2dn3/w==", "the object provided is unrecognized (must be of type ConfigMap): unable to determine "
                     'group/version/kind: cbor: unexpected "break" code (d9d9f7ff)'),
        ("e30=", "the object provided is unrecognized (must be of type ConfigMap): unable to determine "
                 "group/version/kind: unexpected EOF ({})"),
        ("2dn3okRraW5kSUNvbmZpZ01hcERraW5kSUNvbmZpZ01hcA==",
         "the object provided is unrecognized (must be of type ConfigMap): unable to determine group/version/kind: "
         'cbor: found duplicate map key "kind" at map element index 1 '
         "(d9d9f7a2446b696e6449436f6e6669674d6170446b696e6449436f6e6669 ...)"),
        ("2dn3pEphcGlWZXJzaW9uQnYxRGtpbmRJQ29uZmlnTWFwSG1ldGFkYXRhoURuYW1lQWNEZGF0YaFBYQU=",
         'ConfigMap in version "v1" cannot be handled as a ConfigMap: cbor: cannot unmarshal positive integer into Go '
         "struct field v1.ConfigMap.data of type string"),
        ("okRkYXRhokFhQWJBYUFjRGtpbmRJQ29uZmlnTWFw",
         'ConfigMap in version "v1" cannot be handled as a ConfigMap: cbor: found duplicate map key "a" at map element '
         "index 1"),
    ],
)  # fmt: skip
async def test_refused_bodies(data: str, why: str) -> None:
    async with open_server(features=GATES) as server:
        assert (await send(server, data)).refused(400)["message"] == why


async def test_unknown_fields() -> None:
    data = "2dn3pUphcGlWZXJzaW9uQnYxRGtpbmRJQ29uZmlnTWFwSG1ldGFkYXRhoURuYW1lQWNEZGF0YaJBYUFiQW5CMTJDb2RkAQ=="
    why = "cbor: found unknown field at map element index 4"
    async with open_server(features=GATES) as server:
        refused = (await send(server, data, "?fieldValidation=Strict")).refused(400)
        assert refused["message"].endswith(f"cannot be handled as a ConfigMap: strict decoding error: {why}")
        created = await send(server, data)
        assert (created.status, created.header("warning")) == (201, f'299 - "{why}"')


async def test_custom_resources() -> None:
    async with serving(features=GATES) as server:
        await define(server, definition())
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
        created = await server.ask("POST", WIDGETS, cbor_writer.encode(widget), headers=SENT)
        assert created.status == 201, created.body
        listed = shown(await server.ask("GET", WIDGETS, headers=ASKED))
        assert listed == await server.get(WIDGETS)
        assert listed["items"] == [shown(created)]
        refused = await server.ask("POST", WIDGETS, b"\xa1\x01\x02", headers=SENT)
        assert shown(refused)["code"] == 400
        protobuf = await server.ask(
            "POST", WIDGETS, b"", headers={"content-type": "application/vnd.kubernetes.protobuf"}
        )
        assert protobuf.refused(415)["message"].endswith("application/json, application/yaml, application/cbor")


async def test_discovery_is_in_cbor_and_openapi_is_not() -> None:
    async with open_server(features=GATES) as server:
        for path in ("/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1"):
            assert shown(await server.ask("GET", path, headers=ASKED)) == await server.get(path)
        aggregated = f"{CBOR};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        answer = await server.ask("GET", "/apis", headers={"accept": aggregated})
        assert answer.header("content-type") == aggregated
        assert cbor.decode_value(answer.body)["kind"] == "APIGroupDiscoveryList"
        assert (await server.ask("GET", "/openapi/v2", headers=ASKED)).status == 406


async def test_the_openapi_documents_name_it() -> None:
    for features, expected in ((GATES, True), (FeatureGates(), False)):
        async with open_server(features=features) as server:
            answer = await server.ask("GET", "/openapi/v3/api/v1", headers={"accept": "application/json"})
            operations = answer.json()["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]
            assert (CBOR in operations["get"]["responses"]["200"]["content"]) is expected
            assert ("application/apply-patch+cbor" in operations["patch"]["requestBody"]["content"]) is expected
            listed = answer.json()["paths"]["/api/v1/namespaces/{namespace}/configmaps"]["get"]
            assert ("application/cbor-seq" in listed["responses"]["200"]["content"]) is expected


async def test_types_that_are_not_accepted() -> None:
    offered = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    for features, types in ((GATES, f"{offered}, {CBOR}"), (FeatureGates(), offered)):
        async with open_server(features=features) as server:
            body = json.dumps(configmap("a")).encode()
            refused = (await server.ask("POST", MAPS, body, headers={"content-type": "application/cbor-seq"})).refused(
                415
            )
            assert refused["message"].endswith(f"accepted media types include: {types}")
            refused = (await server.ask("GET", f"{MAPS}/a", headers={"accept": "application/cbor-seq"})).refused(406)
            assert refused["message"].endswith(f"Available representations: {types}")


async def test_without_the_gate_nothing_is_in_cbor() -> None:
    async with open_server() as server:
        assert (await server.ask("GET", MAPS, headers=ASKED)).status == 406
        assert (
            await server.ask("POST", MAPS, cbor_writer.encode(configmap("a")), headers={"content-type": CBOR})
        ).status == 415
        headers = {"content-type": "application/apply-patch+cbor"}
        assert (await server.ask("PATCH", f"{MAPS}/a?fieldManager=m", b"\xa0", headers=headers)).status == 415
