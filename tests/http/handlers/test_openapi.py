"""The OpenAPI documents as clients fetch them: types, tags, dates, redirects, compression, and memory."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime

import pytest
import trio
from in_process import InProcess, open_server
from openapi_decoder import decode_document

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.openapi import v2
from kubechronicle.api.openapi.schemas import SchemaChoices
from kubechronicle.api.registry.registry import builtin_registry
from kubechronicle.http.handlers.openapi import Documents

PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
PROTOBUF_V3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
PAGES = ["/version", "/.well-known/openid-configuration", "/openid/v1/jwks"]
V2, BATCH = "/openapi/v2", "/openapi/v3/apis/batch/v1"


@pytest.fixture
async def server() -> AsyncIterator[InProcess]:
    async with open_server(namespaces=()) as running:
        yield running


# -- v3 ---------------------------------------------------------------------------------------------------------------


async def test_the_index_leads_to_immutable_documents(server: InProcess) -> None:
    answer = await server.ask("GET", "/openapi/v3")
    assert answer.header("content-type") == "text/plain; charset=utf-8"  # Go's guess
    index = answer.ok()["paths"]
    assert {"api", "api/v1", "apis", "apis/apps", "apis/apps/v1", "version"} <= set(index)
    for path, entry in index.items():
        assert entry["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=")
    url = index["apis/batch/v1"]["serverRelativeURL"]
    named = await server.ask("GET", url)
    assert named.header("cache-control") == "public, immutable"
    year = parsedate_to_datetime(named.header("expires")) - datetime.now(UTC)
    assert timedelta(days=364) < year <= timedelta(days=365)
    assert named.header("etag").strip('"') == url.partition("=")[2]
    plain = await server.ask("GET", BATCH)
    assert (plain.status, plain.header("cache-control")) == (200, "no-cache, private")
    assert (plain.body, plain.header("etag")) == (named.body, named.header("etag"))


async def test_every_document_of_the_index_is_there(server: InProcess) -> None:
    for path, entry in (await server.get("/openapi/v3"))["paths"].items():
        document = await server.get(entry["serverRelativeURL"])
        assert document["openapi"] == "3.0.0"
        assert document["info"]["title"] == "Kubernetes"
        assert document["info"]["version"].startswith("v1.37.")
        assert all(url.startswith(f"/{path}/") for url in document["paths"])
        await trio.lowlevel.checkpoint()


async def test_an_outdated_hash_is_redirected(server: InProcess) -> None:
    index = (await server.get("/openapi/v3"))["paths"]
    answer = await server.ask("GET", f"{BATCH}?hash=OLD")
    assert (answer.status, answer.body) == (301, b"")
    assert answer.header("location") == index["apis/batch/v1"]["serverRelativeURL"]
    assert answer.header("cache-control") == "no-cache, private"
    assert (await server.ask("GET", f"{BATCH}?hash=")).status == 200


@pytest.mark.parametrize("path", ["apis/nonsense/v1", "apis/batch/v9", "x", "apis/no", "apis/batch/v1/", "", "metrics"])
async def test_unknown_documents_are_404(server: InProcess, path: str) -> None:
    answer = await server.ask("GET", f"/openapi/v3/{path}")
    assert (answer.status, answer.body) == (404, b"")


@pytest.mark.parametrize(
    ("accept", "found"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("application/json;charset=utf-8", "application/json"),
        (PROTOBUF_V3, PROTOBUF_V3),
        ("application/com.github.proto-openapi.spec.v3@v1.0+protobuf", PROTOBUF_V3),
        (f"application/json;q=0.5, {PROTOBUF_V3}", PROTOBUF_V3),
        (f"text/html, {PROTOBUF_V3};q=0.1", PROTOBUF_V3),
        ("text/html", ""),
        ("application/vnd.kubernetes.protobuf", ""),
        (PROTOBUF_V2, ""),
    ],
)
async def test_types_of_v3(server: InProcess, accept: str, found: str) -> None:
    answer = await server.ask("GET", BATCH, headers={"accept": accept})
    assert (answer.status, answer.header("content-type")) == (200 if found else 406, found)
    assert "Accept" in answer.header("vary")
    document = await server.get(BATCH)
    if not found:
        assert answer.body == b""
    elif found == PROTOBUF_V3:
        assert decode_document(answer.body, v3=True) == document
    else:
        assert answer.json() == document


# -- v2 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "found"),
    [
        ("", "application/json"),
        ("application/json, */*", "application/json"),
        ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", PROTOBUF_V2),
        (f"{PROTOBUF_V2}, application/json", PROTOBUF_V2),
        ("application/yaml", ""),
        (PROTOBUF_V3, ""),
    ],
)
async def test_types_of_v2(server: InProcess, accept: str, found: str) -> None:
    answer = await server.ask("GET", V2, headers={"accept": accept})
    assert (answer.status, answer.header("content-type")) == (200 if found else 406, found)
    if not found:
        assert answer.body == b""
        return
    document = answer.json() if found == "application/json" else decode_document(answer.body, v3=False)
    assert document.keys() == {
        "swagger",
        "info",
        "paths",
        "definitions",
        "parameters",
        "securityDefinitions",
        "security",
    }
    assert document == v2.document(builtin_registry(), PAGES, server_version=document["info"]["version"])


async def test_enums_depend_on_a_gate() -> None:
    for on in (True, False):
        gates = FeatureGates(given={"OpenAPIEnums": on})
        async with open_server(namespaces=(), features=gates) as server:
            schemas = (await server.get("/openapi/v3/api/v1"))["components"]["schemas"]
            policy = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["restartPolicy"]
            assert ("enum" in policy, "Possible enum values" in policy["description"]) == (on, on)
            assert not policy["description"].endswith("\n")


async def test_tags_of_v2(server: InProcess) -> None:
    answer = await server.ask("GET", V2)
    assert answer.header("etag") == '"' + hashlib.sha512(answer.body).hexdigest().upper() + '"'
    binary = await server.ask("GET", V2, headers={"accept": PROTOBUF_V2})
    assert binary.header("etag") == answer.header("etag")


# -- caching ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [V2, BATCH])
async def test_conditions(server: InProcess, path: str) -> None:
    first = await server.ask("GET", path)
    etag, modified = first.header("etag"), first.header("last-modified")
    older = format_datetime(parsedate_to_datetime(modified) - timedelta(seconds=1), usegmt=True)
    for headers, status in (
        ({"if-none-match": etag}, 304),
        ({"if-none-match": f'"other", W/{etag}'}, 304),
        ({"if-none-match": "*"}, 304),
        ({"if-none-match": '"other"'}, 200),
        ({"if-modified-since": modified}, 304),
        ({"if-modified-since": older}, 200),
        ({"if-modified-since": "yesterday"}, 200),
        ({"if-none-match": '"other"', "if-modified-since": modified}, 200),  # the tag counts
        ({"if-none-match": etag, "accept": "text/html"}, 406),
    ):
        answer = await server.ask("GET", path, headers=headers)
        assert answer.status == status, headers
        if status == 304:
            assert (answer.body, answer.header("etag"), answer.header("content-type")) == (b"", etag, "")


@pytest.mark.parametrize("path", [V2, "/openapi/v3/apis/apps/v1"])
async def test_compression(server: InProcess, path: str) -> None:
    plain = await server.ask("GET", path)
    assert plain.header("content-encoding") == ""
    packed = await server.ask("GET", path, headers={"accept-encoding": "br, gzip;q=1.0"})
    assert packed.header("content-encoding") == "gzip"
    assert len(packed.body) < len(plain.body) / 4
    assert gzip.decompress(packed.body) == plain.body
    assert "accept-encoding" in packed.header("vary").lower()
    for refused in ("gzip;q=0, identity", "deflate", ""):
        answer = await server.ask("GET", path, headers={"accept-encoding": refused})
        assert answer.header("content-encoding") == ""
        assert answer.body == plain.body
    small = await server.ask("GET", "/openapi/v3/version", headers={"accept-encoding": "gzip"})
    assert small.header("content-encoding") == ""


async def test_a_document_is_made_once(server: InProcess) -> None:
    made: list[str] = []

    class Counting(Documents):
        def _make_v2(self) -> bytes:
            made.append("v2")
            return super()._make_v2()

    documents = Counting(builtin_registry(), version="v1.37.2", pages=frozenset(), choices=SchemaChoices(), former=None)
    request = server.request("GET", V2)
    answers = []

    async def fetch() -> None:
        answers.append(await documents._answer_v2(request))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(fetch)
    assert made == ["v2"]
    assert {answer.status for answer in answers} == {200}
    assert documents.bytes_held() < 1_000_000  # it is stored gzipped
