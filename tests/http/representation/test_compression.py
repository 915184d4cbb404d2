"""Gzip of long answers: decompression restores them, items are compressed once and joined with each head."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from typing import Any

import pytest
import trio
from in_process import ADMIN, MAPS, PROTOBUF, InProcess, configmap, open_server
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key
from kubechronicle.http.list_body import ListBody, stored_bytes, stored_items
from kubechronicle.http.representation import compression
from kubechronicle.http.representation.compression import Compression, combined_crc, deflate, gzipped
from kubechronicle.http.representation.encoding_cache import EncodingCache

GZIP = {"accept-encoding": "gzip"}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize("sizes", [(0, 0), (1, 0), (0, 1), (5, 3), (1000, 70_000), (70_000, 1)])
def test_the_crc_of_two_joined_texts(sizes: tuple[int, int]) -> None:
    first, second = (random.Random(size).randbytes(size) for size in sizes)
    assert combined_crc(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)


def test_parts_can_be_joined_in_any_combination() -> None:
    middle = deflate(iter([b"abc" * 10_000, b"", b"xyz" * 10_000]))
    for opening in (b"", b"[", b"a long opening " * 100):
        body = gzipped([deflate(iter([opening])), middle, deflate(iter([b"]}\n"]), last=True)])
        packed = body.whole()
        assert len(packed) == body.length
        assert gzip.decompress(packed) == opening + b"abc" * 10_000 + b"xyz" * 10_000 + b"]}\n"
        # One member only: browsers ignore a second one.
        inflating = zlib.decompressobj(16 + zlib.MAX_WBITS)
        inflating.decompress(packed)
        assert inflating.eof
        assert not inflating.unused_data


def entries_of(count: int) -> tuple[Entry, ...]:
    return tuple(Entry(Key("configmaps", "n", str(n)), "u", n, n, 1, b'{"a":"%d"}' % n, {}, {}) for n in range(count))


async def test_equal_items_are_compressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for concurrent requests and for different heads; items of other entries are compressed again."""
    compressed: list[int] = []
    original = deflate

    def counting(data: Any, *, last: bool = False) -> Any:
        made = original(data, last=last)
        compressed.append(made.length)
        return made

    monkeypatch.setattr(compression, "deflate", counting)
    compressing, entries = Compression(EncodingCache()), entries_of(5000)
    long = 50_000

    async def ask(opening: bytes, asked: tuple[Entry, ...]) -> None:
        body = ListBody(opening, stored_items(asked, 1, stored_bytes(asked)), b"]}\n")
        packed = await compressing.list_body(body, "form", asked)
        assert gzip.decompress(packed.whole()) == body.whole()

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(ask, b"head %d[" % number, entries)
    assert sum(length > long for length in compressed) == 1
    await ask(b"later[", entries)
    assert sum(length > long for length in compressed) == 1
    await ask(b"later[", entries[1:])
    assert sum(length > long for length in compressed) == 2
    time_dependent = ListBody(b"[", stored_items(entries, 1, stored_bytes(entries)), b"]")
    for _ in range(2):
        assert (
            gzip.decompress((await compressing.list_body(time_dependent, None, entries)).whole())
            == time_dependent.whole()
        )
    assert sum(length > long for length in compressed) == 4


async def test_a_waiting_request_compresses_if_the_first_is_cancelled() -> None:
    compressing, entries = Compression(EncodingCache()), entries_of(5000)
    body = ListBody(b"[", stored_items(entries, 1, stored_bytes(entries)), b"]")
    packed = []

    async def ask() -> None:
        packed.append(await compressing.list_body(body, "form", entries))

    async with trio.open_nursery() as others, trio.open_nursery() as first:
        first.start_soon(ask)
        await wait_all_tasks_blocked()
        others.start_soon(ask)
        await wait_all_tasks_blocked()
        first.cancel_scope.cancel()
    assert gzip.decompress(packed[-1].whole()) == body.whole()


FORMS = {"json": "application/json", "protobuf": PROTOBUF, "table": TABLE, "yaml": "application/yaml"}


@pytest.mark.parametrize("accept", FORMS.values(), ids=FORMS)
async def test_long_answers_are_compressed_for_clients_that_accept_it(accept: str) -> None:
    async with open_server() as server:
        for index in range(20):
            # Long metadata, too, since rows of a table contain it.
            labels = {f"label-{n}": "x" * 60 for n in range(150)}
            await server.post(MAPS, configmap(f"a-{index:02}", labels=labels))
        for _ in range(2):
            plain = await server.ask("GET", MAPS, headers={"accept": accept})
            packed = await server.ask("GET", MAPS, headers={"accept": accept, **GZIP})
            assert len(plain.body) > compression.THRESHOLD
            assert packed.header("content-encoding") == "gzip"
            assert packed.header("vary") == "Accept-Encoding"
            assert packed.header("content-type") == plain.header("content-type")
            assert len(packed.body) < len(plain.body) // 2
            assert gzip.decompress(packed.body) == plain.body
            assert plain.header("content-encoding") == ""
            await server.patch(f"{MAPS}/a-00", {"metadata": {"labels": {"label-0": "y"}}})
        refused = await server.ask("GET", MAPS, headers={"accept": accept, "accept-encoding": "gzip;q=0"})
        short = await server.ask("GET", f"{MAPS}?limit=1", headers={"accept": accept, **GZIP})
        assert refused.header("content-encoding") == short.header("content-encoding") == ""


async def test_a_long_object_is_compressed() -> None:
    async with open_server() as server:
        made = await server.ask("POST", MAPS, configmap("a", data="x" * 200_000), headers=GZIP)
        read = await server.ask("GET", f"{MAPS}/a", headers=GZIP)
        assert made.header("content-encoding") == read.header("content-encoding") == "gzip"
        assert gzip.decompress(read.body) == (await server.ask("GET", f"{MAPS}/a")).body


async def test_long_lists_over_the_wire(wire: Any) -> None:
    """In chunks over HTTP/1.1 and HTTP/2, plain and compressed; the connection continues afterwards."""
    async with open_server() as server:
        for index in range(40):
            await server.post(MAPS, configmap(f"a-{index:02}", data="x" * 10_000))
        expected = (await server.ask("GET", MAPS)).body
        address = await wire(server.assembly.application.application)
        headers = {"authorization": f"Bearer {ADMIN}"}
        one, two = await address.http1(), await address.http2()
        for fields in (headers, {**headers, **GZIP}):
            first = await one.ask("GET", MAPS, headers=fields)
            second = await two.answer(await two.send("GET", MAPS, headers=fields))
            for answer in (first, second):
                assert answer.status == 200
                body = gzip.decompress(answer.body) if fields is not headers else answer.body
                assert body == expected


STATE = f"{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


@pytest.mark.parametrize("accept", ["application/json", TABLE])
@pytest.mark.parametrize("target", [STATE, f"{MAPS}?watch=1&allowWatchBookmarks=true"], ids=["asked", "by default"])
async def test_watches_that_begin_with_the_state_are_compressed(
    autojump_clock: MockClock, target: str, accept: str
) -> None:
    async with open_server() as server:
        await server.post(MAPS, configmap("a", x="x" * 200_000))  # compressed in a thread
        await server.post(MAPS, configmap("b"))
        for _ in range(2):  # two watchers, who share the frames of later events
            server.nursery.start_soon(read_compressed, server, f"{target}&timeoutSeconds=9", accept)
        await wait_all_tasks_blocked()
        for number in range(3):
            await server.post(MAPS, configmap(f"c-{number}"))
        await wait_all_tasks_blocked()


async def read_compressed(server: InProcess, target: str, accept: str) -> None:
    async with server.watch(target, headers={"accept": accept, **GZIP}) as watch:
        assert watch.response.header("content-encoding") == "gzip"
        assert watch.response.header("vary") == "Accept-Encoding"
        # One member, whose end and CRC are checked: the reader of Go waits at the end of a member for the next one.
        reader, lines = zlib.decompressobj(31), b""
        while (chunk := await watch.chunk()) is not None:
            lines += reader.decompress(chunk)
            assert lines == b"" or lines.endswith(b"\n")  # each write can be read at once
        assert reader.eof
        assert not reader.unused_data
    events = [json.loads(line) for line in lines.splitlines()]
    found = [event["object"] if accept != TABLE else event["object"]["rows"][0]["object"] for event in events]
    names = [each["metadata"].get("name") for each in found]
    assert [name for name in names if name] == ["a", "b", "c-0", "c-1", "c-2"]


@pytest.mark.parametrize(
    ("target", "headers", "gates"),
    [
        (STATE, {}, {}),
        (STATE, {"accept-encoding": "gzip;q=0, br"}, {}),
        (f"{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion=1", GZIP, {}),
        (STATE.replace("&allowWatchBookmarks=true", ""), GZIP, {}),
        (STATE, GZIP, {"WatchListCompression": False}),
    ],
    ids=["not accepted", "refused", "no state", "no mark", "gate"],
)
async def test_other_watches_are_not(
    autojump_clock: MockClock, target: str, headers: dict[str, str], gates: dict[str, bool]
) -> None:
    async with open_server(features=FeatureGates(given=gates)) as server:
        await server.post(MAPS, configmap("a"))
        async with server.watch(target, headers=headers) as watch:
            assert watch.response.header("content-encoding") == ""
            assert (await watch.event())[1] == "a"


async def test_without_the_gate_answers_are_not_compressed() -> None:
    """Neither lists nor objects nor discovery; OpenAPI documents are, as in kube-apiserver."""
    paths = (MAPS, f"{MAPS}/a", "/apis")
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    for gates in ({}, {"APIResponseCompression": False}):
        async with open_server(features=FeatureGates(given=gates)) as server:
            for name in ("a", "b"):
                await server.post(MAPS, configmap(name, x="x" * 200_000))
            for path in paths:
                accept = {"accept": aggregated} if path == "/apis" else {}
                answer = await server.ask("GET", path, headers={**GZIP, **accept})
                assert answer.status == 200
                expected = "" if gates or (path == "/apis" and len(answer.body) <= compression.THRESHOLD) else "gzip"
                assert answer.header("content-encoding") == expected, path
            assert (await server.ask("GET", "/openapi/v2", headers=GZIP)).header("content-encoding") == "gzip"
