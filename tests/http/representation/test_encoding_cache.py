"""The encoding cache: cached bytes equal newly encoded ones, for every kind and form, and are never stale."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio
from drawn_objects import example_settings, objects
from hypothesis import assume, given
from hypothesis import strategies as st
from in_process import MAPS, PROTOBUF, configmap, open_server
from trio.testing import MockClock

from kubechronicle.actors import pauses
from kubechronicle.actors.large_work import LARGE_BYTES
from kubechronicle.actors.reading.reads import Listing
from kubechronicle.api.codecs import errors, protobuf
from kubechronicle.api.codecs.negotiate import JSON, YAML, Representation
from kubechronicle.api.codecs.whole import encode
from kubechronicle.api.meta.encoding import encode_stored
from kubechronicle.api.pipeline import conversion
from kubechronicle.api.pipeline.pipeline import to_request_version
from kubechronicle.api.registry.registry import ResourceType, builtin_registry
from kubechronicle.api.schema import types
from kubechronicle.api.tables import table as tables
from kubechronicle.eventlog.entries import Entry, seal
from kubechronicle.eventlog.records import Key
from kubechronicle.http import list_body
from kubechronicle.http.list_body import ListBody
from kubechronicle.http.representation import entry_encoder as encoding
from kubechronicle.http.representation.encoding_cache import OVERHEAD, CachedEncoder, EncodingCache
from kubechronicle.http.representation.entry_encoder import Body, EntryEncoder
from kubechronicle.http.representation.event_encoder import EventEncoder

REGISTRY = builtin_registry()
LISTED = [rt for rt in REGISTRY if rt.stored and "list" in rt.verbs and rt.definition]
THEN = datetime(2026, 5, 1, 12, tzinfo=UTC)
TABLE = Representation(media_type=JSON, kind="Table", group="meta.k8s.io", version="v1")
FORMS = {
    "json": Representation(media_type=JSON),
    "protobuf": Representation(media_type=PROTOBUF),
    "table": TABLE,
    "metadata": Representation(media_type=JSON, kind="PartialObjectMetadataList", version="v1"),
    "metadata in protobuf": Representation(media_type=PROTOBUF, kind="PartialObjectMetadataList", version="v1"),
    "old metadata in protobuf": Representation(
        media_type=PROTOBUF, kind="PartialObjectMetadataList", version="v1beta1"
    ),
}


def whole(body: Body) -> bytes:
    if isinstance(body, bytes):
        return body
    made = body.whole()
    assert len(made) == body.length
    return made


def stored_type(rt: ResourceType) -> ResourceType:
    found = REGISTRY.storage(rt.resource)
    assert found is not None
    return found


def entry_of(rt: ResourceType, obj: dict[str, Any], revision: int) -> Entry:
    """Return an entry as in a view, of an object without apiVersion and kind."""
    stored = stored_type(rt)
    found = {"apiVersion": stored.api_version, "kind": stored.kind, **obj}
    metadata = {**obj["metadata"], "name": f"a-{revision:04}", "creationTimestamp": "2026-05-01T11:00:00Z"}
    found["metadata"] = {key: value for key, value in metadata.items() if value not in (None, {}, [])}
    conversion.apply(found, types.object_type(stored.definition))
    body = seal(encode_stored(found), revision)
    return Entry(Key(rt.resource, "n", f"a-{revision:04}"), "u", revision, revision, 1, body, {}, {})


def newly_encoded(rt: ResourceType, form: Representation, entries: list[Entry], metadata: dict[str, Any]) -> bytes:
    """Return the list as encoded from whole objects."""
    found = [entry.object() for entry in entries]
    version = f"meta.k8s.io/{form.version}"
    if form.kind == "Table":
        served = [to_request_version(rt, obj) for obj in found]
        made = tables.table(rt, found, now=THEN, list_metadata=metadata, version=version, served=served)
        return encode(made, form.media_type)
    if form.kind:
        made = tables.partial_object_metadata_list(found, list_metadata=metadata, version=version)
        return encode(made, form.media_type)
    served = [to_request_version(rt, obj) for obj in found]
    if form.media_type == PROTOBUF:
        raw = [protobuf.encode_raw(obj) for obj in served]
        return protobuf.encode_list(rt.api_version, rt.list_kind, metadata, raw)
    items = [{name: value for name, value in obj.items() if name not in ("apiVersion", "kind")} for obj in served]
    made = {"kind": rt.list_kind, "apiVersion": rt.api_version, "metadata": metadata, "items": items}
    return encode(made, form.media_type)


@pytest.mark.parametrize("rt", LISTED, ids=repr)
@given(data=st.data())
@example_settings(2)
def test_cached_bytes_equal_new_ones_for_every_kind(rt: ResourceType, data: st.DataObject) -> None:
    kind = types.object_type(stored_type(rt).definition)
    drawn = [data.draw(objects(kind, budget=25)) for _ in range(2)]
    try:
        entries = [entry_of(rt, obj, revision) for revision, obj in enumerate(drawn, 5)]
    except (AttributeError, KeyError):
        assume(False)  # an invalid object: defaults are set here without validation
    metadata = {"resourceVersion": "9", "continue": "abc", "remainingItemCount": 3}
    listing = Listing(entries=entries, revision=9, continue_token="abc", remaining=3)
    for form in FORMS.values():
        if form.media_type == PROTOBUF and not rt.message:
            continue
        try:
            expected = newly_encoded(rt, form, entries, metadata)
        except (errors.EncodeError, AttributeError, TypeError, ValueError, KeyError):
            assume(False)
        cache = EncodingCache()
        for _ in range(2):
            encoder = EntryEncoder(rt, form, cache=cache)
            encoder._now = lambda: THEN  # type: ignore[method-assign]  # with as_of, an EntryEncoder caches nothing
            made = whole(trio.run(encoder.many, listing))
            assert made == expected


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("count", [0, 1, 3, 700])
async def test_chunks_of_long_lists_equal_new_ones(form: Representation, count: int) -> None:
    rt = REGISTRY.lookup("", "v1", "configmaps")
    assert rt is not None
    entries = [entry_of(rt, {"metadata": {}, "data": {"a": "ü" * 500}}, revision) for revision in range(5, 5 + count)]
    cache = EncodingCache()
    for listed in (entries, tuple(entries), *[tuple(entries)] * 3):
        encoder = EntryEncoder(rt, form, cache=cache)
        encoder._now = lambda: THEN  # type: ignore[method-assign]
        body = await encoder.many(Listing(entries=listed, revision=9))
        assert whole(body) == newly_encoded(rt, form, entries, {"resourceVersion": "9"})


async def test_ages_are_those_of_the_answer() -> None:
    rt = REGISTRY.lookup("", "v1", "events")
    assert rt is not None
    event = {"metadata": {}, "lastTimestamp": "2026-05-01T11:59:00Z", "firstTimestamp": "yesterday", "message": '"\\<ü'}
    cache, entry = EncodingCache(), entry_of(rt, event, 5)
    ages = []
    for seconds in (0, 7):
        encoder = EntryEncoder(rt, TABLE, cache=cache)
        encoder._now = lambda later=seconds: THEN + timedelta(seconds=later)  # type: ignore[method-assign,misc]
        cells = json.loads(whole(await encoder.many(Listing(entries=[entry], revision=9))))["rows"][0]["cells"]
        ages.append((cells[0], cells[6], cells[7]))
    assert ages == [("60s", '"\\<ü', "<invalid>"), ("67s", '"\\<ü', "<invalid>")]


async def test_initial_events_are_those_of_single_objects() -> None:
    rt = REGISTRY.lookup("", "v1", "configmaps")
    assert rt is not None
    entries = [entry_of(rt, {"metadata": {"labels": {"a": "b"}}}, revision) for revision in range(5, 8)]
    metadata = [replace(FORMS[name], kind="PartialObjectMetadata") for name in ("metadata", "metadata in protobuf")]
    for form in (FORMS["json"], FORMS["protobuf"], *metadata):
        cache = EncodingCache()
        single = [EventEncoder(rt, form).event("ADDED", entry) for entry in entries]
        assert await EventEncoder(rt, form, cache=cache).initial(entries) == single
        assert await EventEncoder(rt, form, cache=cache).initial(entries) == single


# -- bounds -----------------------------------------------------------------------------------------------------------


def small_entries(count: int, *, size: int = 100) -> list[Entry]:
    return [
        Entry(Key("configmaps", "n", str(index)), "u", index, index, 1, b"x" * size, {}, {}) for index in range(count)
    ]


def test_the_cache_is_bounded_and_used_items_stay() -> None:
    entries, made = small_entries(1000), []

    def make(entry: Entry) -> bytes:
        made.append(entry)
        return b"y" * 100

    cache = EncodingCache(20 * (200 + OVERHEAD))
    used = entries[0]
    for start in range(4, 1000, 4):
        CachedEncoder(cache, "form", make, len).all([used, *entries[start : start + 4]])
        assert cache.bytes_held <= 20 * (200 + OVERHEAD)
    assert made.count(used) == 1
    assert len(made) == 997


def test_of_a_long_list_the_beginning_is_cached() -> None:
    entries, made = small_entries(1000), []

    def make(entry: Entry) -> bytes:
        made.append(entry)
        return b"y" * 100

    cache = EncodingCache(200 * (200 + OVERHEAD))
    for _ in range(3):
        assert CachedEncoder(cache, "form", make, len).all(entries) == [b"y" * 100] * 1000
    assert cache.bytes_held <= 200 * (200 + OVERHEAD)
    assert len(made) == 1000 + 900 + 900


async def test_a_list_is_cached_at_its_second_request() -> None:
    entries, made = tuple(small_entries(100)), []

    async def make() -> list_body.Items:
        made.append(1)
        return list_body.stored_items(entries, 0, list_body.stored_bytes(entries))

    async def listed(listed: tuple[Entry, ...]) -> bytes:
        items = await list_body.list_items(cache, "form", listed, make)
        return b"".join(items.chunks(b"[", b"]"))

    cache = EncodingCache()
    first = await listed(entries)
    small = cache.bytes_held
    assert small < 10 * len(entries) + 1000
    assert [await listed(entries) for _ in range(3)] == [first] * 3
    assert len(made) == 2
    assert cache.bytes_held > small + len(first) - 10
    await listed(entries[:99])
    assert len(made) == 3


def test_equal_entries_are_different_keys() -> None:
    cache, (one, other) = EncodingCache(), (small_entries(1)[0] for _ in range(2))
    assert CachedEncoder(cache, "a", lambda entry: b"a", len).all([one]) == [b"a"]
    assert CachedEncoder(cache, "a", lambda entry: b"b", len).all([other]) == [b"b"]


def test_forms_do_not_share_items() -> None:
    cache, entries = EncodingCache(), small_entries(3)
    assert CachedEncoder(cache, "a", lambda entry: b"a", len).all(entries) == [b"a"] * 3
    assert CachedEncoder(cache, "b", lambda entry: b"b", len).all(entries) == [b"b"] * 3
    assert CachedEncoder(cache, "a", lambda entry: b"c", len).one(entries[0]) == b"a"


# -- in a server ------------------------------------------------------------------------------------------------------

ACCEPT = {
    "json": JSON,
    "protobuf": PROTOBUF,
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io",
    "metadata": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
}


@pytest.mark.parametrize("accept", ACCEPT.values(), ids=ACCEPT)
async def test_a_list_after_a_change_shows_the_change(
    accept: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_body, "FEW", 0)
    headers = {"accept": accept}
    async with open_server() as server:

        async def listed(*present: bytes, gone: tuple[bytes, ...] = ()) -> None:
            for _ in range(4):  # encoded, encoded and cached, cached
                body = (await server.ask("GET", MAPS, headers=headers)).body
                assert all(text in body for text in present)
                assert not any(text in body for text in gone)

        for name in ("a", "b"):
            await server.post(MAPS, configmap(name, labels={"state": "first"}))
        await listed(b"first")
        await server.put(f"{MAPS}/a", configmap("a", labels={"state": "second"}))
        await listed(b"first", b"second")
        await server.delete(f"{MAPS}/a")
        await listed(b"first", gone=(b"second",))
        await server.delete(f"{MAPS}/b")
        await server.post(MAPS, configmap("b", labels={"state": "third"}))
        await listed(b"third", gone=(b"first", b"second"))


async def test_long_lists_are_sent_in_chunks_and_counted(autojump_clock: MockClock) -> None:
    async with open_server() as server:
        for index in range(30):
            await server.post(MAPS, configmap(f"a-{index:02}", data="x" * 10_000))
        response = await server.respond("GET", MAPS)
        assert isinstance(response.body, ListBody)
        assert response.body.length > list_body.WHOLE
        answer = await server.ask("GET", MAPS)
        assert [item["metadata"]["name"] for item in answer.json()["items"]] == [f"a-{i:02}" for i in range(30)]
        refused = await server.respond("GET", f"{MAPS}?limit=2")
        assert isinstance(refused.body, bytes)
        shown = server.assembly.application.metrics.exposition().decode().splitlines()
        assert any("apiserver_response_sizes_sum" in line and 'resource="configmaps"' in line for line in shown)
        assert not any("apiserver_longrunning_requests{" in line and "LIST" in line for line in shown)


@pytest.mark.parametrize("form", [FORMS["protobuf"], Representation(media_type=YAML)])
async def test_other_tasks_run_while_a_list_is_encoded(form: Representation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "TURN", 0.0)
    rt = REGISTRY.lookup("", "v1", "configmaps")
    assert rt is not None
    entries = [entry_of(rt, {"metadata": {}}, revision) for revision in range(5, 5 + 4 * encoding.PART)]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        body = whole(await EntryEncoder(rt, form).many(Listing(entries=entries, revision=9)))
        assert len(body) > len(entries)
        nursery.cancel_scope.cancel()
    assert turns >= 1


async def test_large_entries_are_encoded_in_a_thread() -> None:
    rt = REGISTRY.lookup("", "v1", "configmaps")
    assert rt is not None
    small, large = (
        entry_of(rt, {"metadata": {}}, 5),
        entry_of(rt, {"metadata": {}, "data": {"a": "x" * LARGE_BYTES}}, 6),
    )
    threads: dict[Entry, int] = {}

    def make(entry: Entry) -> bytes:
        threads[entry] = threading.get_ident()
        return entry.json

    for cache in (None, EncodingCache()):
        encoder = CachedEncoder(cache, "form", make, len)
        assert await encoder.all_large([small, large]) == [small.json, large.json]
        assert threads[small] == threading.get_ident() != threads[large]
