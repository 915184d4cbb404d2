"""Cached lists: their bytes are bounded, although each list refers to all of its former objects."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import pytest
from in_process import MAPS, configmap, open_server
from trio.testing import MockClock

from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key
from kubechronicle.http import list_body
from kubechronicle.http.list_body import joined_items
from kubechronicle.http.representation.encoding_cache import CachedEncoder, EncodingCache

SIZE = 10_000


def replaced_list(count: int = 64, namespace: str = "n") -> tuple[Entry, ...]:
    """Return a list with all objects replaced."""
    return tuple(
        Entry(Key("nodes", namespace, str(each)), "u", 1, 1, 1, b"%d" % each * SIZE, {}, {}) for each in range(count)
    )


def held_by(cache: EncodingCache) -> set[Entry]:
    """Return all entries to which cached lists refer."""
    found = [one for generation in (cache._young, cache._old) for form in generation.values() for one in form.values()]
    return {entry for one in found if not isinstance(one, bytes) for entry in one.entries}


async def listed(cache: EncodingCache, entries: Sequence[Entry], form: str = "form") -> None:
    async def make() -> list_body.Items:
        return joined_items([b"short"] * len(entries))

    await list_body.list_items(cache, form, entries, make)


@pytest.mark.parametrize("times", [1, 3])
async def test_replaced_lists_are_dropped(times: int) -> None:
    cache = EncodingCache(100_000_000)
    for _ in range(20):
        entries = replaced_list()
        for _ in range(times):
            await listed(cache, entries)
        assert len(held_by(cache)) <= len(entries)
    assert cache.bytes_held >= sum(len(entry.json) for entry in held_by(cache))


async def test_lists_of_many_namespaces_are_bounded() -> None:
    cache = EncodingCache(16 * 64 * SIZE)
    for number in range(40):
        entries = replaced_list(namespace=f"n-{number}")
        for _ in range(3):
            await listed(cache, entries)
        assert sum(len(entry.json) for entry in held_by(cache)) <= cache.bytes_held <= 16 * 64 * SIZE
    assert len(held_by(cache)) >= 3 * len(entries)


async def test_forms_of_a_list_count_its_entries_once() -> None:
    cache = EncodingCache(3 * 64 * SIZE * 2)
    for _ in range(3):
        entries = replaced_list()
        for _ in range(3):
            for form in ("one", "other", "third"):
                await listed(cache, entries, form)
        assert held_by(cache) == set(entries)
        assert 64 * SIZE < cache.bytes_held < 2 * 64 * SIZE * 2
    await listed(cache, replaced_list(), "one")
    assert held_by(cache) == set()
    assert cache.bytes_held < SIZE


async def test_pages_do_not_replace_the_list() -> None:
    cache, entries = EncodingCache(), replaced_list(200)
    for _ in range(3):
        for asked in (entries, entries[:100], entries[100:], list(entries)):
            await listed(cache, asked)
    assert cache.get_list(("list", "form"), entries)


async def test_the_note_of_a_first_request_is_for_that_list_only() -> None:
    cache, entries = EncodingCache(), replaced_list()
    await listed(cache, entries)
    assert cache.get_list(("list", "form"), entries) == ()
    assert cache.get_list(("list", "form"), replaced_list()) is None
    await listed(cache, entries)
    assert cache.get_list(("list", "form"), entries)
    assert cache.get_list(("list", "form"), (*entries,))
    for place in (0, 31, 63):
        replaced = (*entries[:place], replaced_list()[place], *entries[place + 1 :])
        assert cache.get_list(("list", "form"), replaced) is None
    assert cache.get_list(("list", "form"), entries[:-1]) is None


async def test_pages_are_cached() -> None:
    cache, entries = EncodingCache(), replaced_list(192)
    pages = [cache.lists.hits]
    for _ in range(3):
        for start in range(0, 192, 64):
            await listed(cache, entries[start : start + 64])
        pages.append(cache.lists.hits)
    assert pages == [0, 0, 0, 3]


async def test_encodings_begun_before_an_erasure_are_not_cached() -> None:
    cache, entries = EncodingCache(), replaced_list()

    async def make() -> list_body.Items:
        if erased:
            cache.clear()
        return joined_items(CachedEncoder(cache, "form", lambda entry: entry.json, len).all(entries))

    erased = False
    encoded = CachedEncoder(cache, "form", lambda entry: entry.json, len)
    await list_body.list_items(cache, "form", entries, make)
    erased = True
    await list_body.list_items(cache, "form", entries, make)
    assert held_by(cache) == set()
    cache.clear()
    encoded.all(entries)
    assert cache.bytes_held == 0


async def test_compressed_lists_do_not_refer_to_former_objects(autojump_clock: MockClock) -> None:
    gc.collect()
    async with open_server() as server:
        owners = [callback.__self__ for callback in server.assembly.views._erasure_callbacks]  # type: ignore[attr-defined]
        (cache,) = [owner for owner in owners if isinstance(owner, EncodingCache)]
        for number in range(20):
            await server.post(MAPS, configmap(f"m-{number}", text="x" * SIZE))
        for number in range(5):
            for name in range(20):
                await server.patch(f"{MAPS}/m-{name}", {"data": {"text": f"{number}" * SIZE}})
            for _ in range(2):
                answer = await server.ask("GET", MAPS, headers={"accept-encoding": "gzip"})
                assert answer.header("content-encoding") == "gzip"
        assert {entry.version for entry in held_by(cache)} == {6}
        assert cache.bytes_held >= 20 * SIZE
