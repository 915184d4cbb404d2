"""Long lists: indented ones are encoded in pieces, and equal ones at the same time are encoded once."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import trio
from in_process import MAPS, PROTOBUF, configmap, open_server
from trio.testing import MockClock, wait_all_tasks_blocked

from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key
from kubechronicle.http.list_body import Items, joined_items, list_items
from kubechronicle.http.representation.encoding_cache import MOST_BYTES, EncodingCache

COUNT = 130
TABLE = "application/json;as=Table;v={};g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v={};g=meta.k8s.io"
FORMS = ("application/json", TABLE.format("v1"), TABLE.format("v1beta1"), METADATA.format("v1"))


@pytest.mark.parametrize("accept", FORMS)
async def test_an_indented_list_is_the_same_list(accept: str, autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for number in range(COUNT):
            await server.post(MAPS, {**configmap(f"m-{number}"), "data": {"text": 'a\n"b"', "empty": ""}})
        plain = await server.ask("GET", MAPS, headers={"accept": accept})
        indented = await server.ask("GET", f"{MAPS}?pretty=true", headers={"accept": accept})
        shown = json.loads(plain.body)
        assert indented.json() == shown
        assert indented.body.decode() == json.dumps(shown, indent=2, ensure_ascii=False)


def listed(count: int = 100) -> tuple[Entry, ...]:
    return tuple(Entry(Key("nodes", "", f"n-{each:03}"), "u", 1, 1, 1, b"{}", {}, {}) for each in range(count))


class Encoding:
    """Counts the encodings, each of which waits until it is let go."""

    def __init__(self) -> None:
        self.count = 0
        self.go = trio.Event()

    async def __call__(self) -> Items:
        self.count += 1
        await self.go.wait()
        return joined_items([b"x"] * 100)


async def run(
    cache: EncodingCache, entries: Sequence[Entry], encode: Encoding, *, keeps: bool, found: list[Items]
) -> None:
    found.append(await list_items(cache, "form", entries, encode, keeps=keeps))


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("as_list", [True, False])
async def test_equal_lists_at_once_are_encoded_once(keeps: bool, as_list: bool) -> None:
    cache, encode, entries = EncodingCache(), Encoding(), listed()
    found: list[Items] = []
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            same = list(entries) if as_list else entries
            nursery.start_soon(lambda same=same: run(cache, same, encode, keeps=keeps, found=found))
        await wait_all_tasks_blocked()
        encode.go.set()
    assert encode.count == 1
    assert {b"".join(items.chunks(b"", b"")) for items in found} == {b"x" * 100}
    assert len(found) == 20
    assert not cache.flights


async def test_another_list_of_the_same_scope_is_encoded_itself() -> None:
    cache, encode, entries = EncodingCache(), Encoding(), listed()
    changed = (*entries[:50], listed()[50], *entries[51:])
    found: list[Items] = []
    async with trio.open_nursery() as nursery:
        for same in (entries, changed):
            nursery.start_soon(lambda same=same: run(cache, same, encode, keeps=True, found=found))
        await wait_all_tasks_blocked()
        encode.go.set()
    assert encode.count == 2


async def test_others_go_on_when_the_first_request_is_cancelled() -> None:
    cache, encode, entries = EncodingCache(), Encoding(), listed()
    found: list[Items] = []
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as leader:
                leader.start_soon(lambda: run(cache, entries, encode, keeps=True, found=found))
                await wait_all_tasks_blocked()
                nursery.start_soon(lambda: run(cache, entries, encode, keeps=True, found=found))
                await wait_all_tasks_blocked()
                scope.cancel()
        await wait_all_tasks_blocked()
        encode.go.set()
    assert encode.count == 2
    assert len(found) == 1


async def test_a_list_after_an_erasure_does_not_wait_for_one_from_before() -> None:
    cache, encode, entries = EncodingCache(), Encoding(), listed()
    found: list[Items] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run(cache, entries, encode, keeps=True, found=found))
        await wait_all_tasks_blocked()
        cache.clear()
        nursery.start_soon(lambda: run(cache, entries, encode, keeps=True, found=found))
        await wait_all_tasks_blocked()
        encode.go.set()
    assert encode.count == 2


def test_the_bound_follows_the_store_up_to_the_limit() -> None:
    store = [0]
    cache = EncodingCache(1 << 30, lambda: store[0])
    for size, bound in (
        (0, MOST_BYTES),
        (1 << 20, MOST_BYTES),
        (50 << 20, 600 << 20),
        (1 << 30, 1 << 30),
        (0, MOST_BYTES),
    ):
        store[0] = size
        cache.fit()
        assert 2 * cache.half == bound
    small = EncodingCache(1 << 20, lambda: 1 << 30)
    small.fit()
    assert 2 * small.half == 1 << 20


async def test_the_size_of_the_store_follows_its_changes(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        views = server.store.reads.views

        def counted() -> int:
            return sum(len(entry.json) for view in views for entry in view.entries())

        assert views.bytes == counted()
        await server.post(MAPS, configmap("a"))
        await server.post(MAPS, configmap("b"))
        await server.put(f"{MAPS}/a", {**configmap("a"), "data": {"long": "x" * 1000}})
        assert views.bytes == counted()
        await server.delete(f"{MAPS}/b")
        assert views.bytes == counted()
        assert (await server.ask("GET", MAPS, headers={"accept": PROTOBUF})).status == 200


@pytest.mark.parametrize(("most", "kept"), [(1 << 30, True), (1, False)])
async def test_a_list_above_its_bound_is_not_kept(most: int, kept: bool) -> None:
    cache, encode, entries = EncodingCache(), Encoding(), listed()
    encode.go.set()
    for _ in range(3):  # the second is the first that may be kept
        await list_items(cache, "form", entries, encode, most=most)
    assert encode.count == (2 if kept else 3)
