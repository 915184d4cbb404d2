"""Custom objects as the present schema shows them: looked at once, and spliced where it changes nothing."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import trio
from custom import objects
from custom.definitions import definition, established, version

from kubechronicle.actors.large_work import LARGE_BYTES
from kubechronicle.actors.reading.reads import Listing
from kubechronicle.api.codecs.negotiate import Representation
from kubechronicle.api.custom.served import all_types
from kubechronicle.api.meta.encoding import encode_custom
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry, Event, seal
from kubechronicle.eventlog.records import Key, Operation
from kubechronicle.http.representation.encoding_cache import EncodingCache
from kubechronicle.http.representation.entry_encoder import EntryEncoder
from kubechronicle.http.representation.event_encoder import EventEncoder
from kubechronicle.http.representation.present_schema import PresentSchema

JSON = Representation(media_type="application/json")
TABLE = Representation(media_type="application/json", kind="Table", group="meta.k8s.io", version="v1")
TEXT = {"type": "string"}


def widgets(properties: dict[str, Any], like: tuple[ResourceType, ...] = ()) -> tuple[ResourceType, ...]:
    schema = {"type": "object", "properties": properties}
    columns = [{"name": "Size", "type": "string", "jsonPath": ".size"}]
    one = version(schema={"openAPIV3Schema": schema}, additionalPrinterColumns=columns)
    return all_types(established(definition(one)), like=like)


def entry_of(name: str, revision: int = 5, **members: Any) -> Entry:
    meta = {"name": name, "namespace": "n", "uid": "u", "generation": 1}
    obj: dict[str, Any] = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta, **members}
    body = seal(encode_custom(obj), revision)
    return Entry(Key("widgets.example.com", "n", name), "u", revision, revision, 1, body, {}, {})


def body_of(made: Any) -> Any:
    return orjson.loads(made if isinstance(made, bytes) else made.whole())


def test_an_entry_is_looked_at_once_for_each_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Entry] = []
    look = PresentSchema._look

    def counted(self: PresentSchema, entry: Entry) -> bool:
        looks.append(entry)
        return look(self, entry)

    monkeypatch.setattr(PresentSchema, "_look", counted)
    (old,), (new,) = widgets({"size": TEXT, "spare": TEXT}), widgets({"size": {**TEXT, "default": "L"}})
    kept, filled, pruned = entry_of("a", size="S"), entry_of("b"), entry_of("c", size="S", spare="g")
    for _ in range(3):
        assert [PresentSchema(old).keeps(entry) for entry in (kept, filled, pruned)] == [True, True, True]
    assert len(looks) == 3
    for _ in range(3):
        assert [PresentSchema(new).keeps(entry) for entry in (kept, filled, pruned)] == [True, False, False]
    assert len(looks) == 6


def test_a_change_of_conditions_keeps_the_marks() -> None:
    types = widgets({"size": TEXT})
    entry = entry_of("a")
    assert PresentSchema(types[0]).keeps(entry)
    again = widgets({"size": TEXT}, like=types)
    assert PresentSchema(again[0]).is_known_to_keep(entry)


def test_an_object_with_too_many_defaults_is_shown_as_stored() -> None:
    item = {"type": "object", "properties": {f"p{n}": {**TEXT, "default": "d"} for n in range(1000)}}
    (rt,) = widgets({"items": {"type": "array", "items": item}})
    entry = entry_of("a", items=[{}] * 300)
    assert EntryEncoder(rt, JSON).one(entry) == entry.json + b"\n"


@pytest.mark.parametrize("cache", [EncodingCache(), None])
async def test_a_list_splices_what_the_schema_keeps_and_encodes_the_rest(cache: EncodingCache | None) -> None:
    (rt,) = widgets({"size": {**TEXT, "default": "L"}})
    entries = tuple(entry_of(f"a{n:03}", n + 1, **({"size": "S"} if n % 2 else {})) for n in range(100))
    for _ in range(3):  # the third is answered from the cache of lists
        found = body_of(await EntryEncoder(rt, JSON, cache=cache).many(Listing(entries=entries, revision=200)))
        assert [item["size"] for item in found["items"]] == ["L", "S"] * 50
        rows = body_of(await EntryEncoder(rt, TABLE, cache=cache).many(Listing(entries=entries, revision=200)))["rows"]
        assert [row["cells"][1:] for row in rows] == [["L"], ["S"]] * 50
    all_kept = entries[1::2]
    found = await EntryEncoder(rt, JSON).many(Listing(entries=all_kept, revision=200))
    assert b",".join(entry.json for entry in all_kept) in found.whole()  # type: ignore[union-attr]


async def test_events_show_the_present_schema() -> None:
    (rt,) = widgets({"size": {**TEXT, "default": "L"}})
    old, new = entry_of("a"), entry_of("b", size="S")
    initial = await EventEncoder(rt, JSON).initial([old, new])
    assert [orjson.loads(frame)["object"]["size"] for frame in initial] == ["L", "S"]
    event = Event(5, Operation.CREATE, old, None, None)  # type: ignore[arg-type]
    assert orjson.loads(EventEncoder(rt, JSON).event("ADDED", old, event))["object"]["size"] == "L"
    table = orjson.loads(EventEncoder(rt, TABLE).event("ADDED", old, event))
    assert table["object"]["rows"][0]["cells"] == ["a", "L"]


async def test_large_objects_are_looked_at_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[Any] = []
    run_sync = trio.to_thread.run_sync

    async def counted(function: Any, *args: Any, **options: Any) -> Any:
        threads.append(args)
        return await run_sync(function, *args, **options)

    monkeypatch.setattr(trio.to_thread, "run_sync", counted)
    (rt,) = widgets({"size": TEXT})
    entry = entry_of("a", size="S" * LARGE_BYTES)
    encoder = EntryEncoder(rt, JSON)
    assert not encoder.splices(entry)
    for _ in range(2):
        assert await PresentSchema(rt).keeps_all([entry])
    assert len(threads) == 1
    assert encoder.splices(entry)


def test_a_written_object_is_kept_by_the_schema_it_was_written_with() -> None:
    rt = objects.widgets(subresources={})
    found = {"replicas": 1.0, "any": {"a": None}, "name": "n", "tags": ["b", "a"], "unknown": 5, "nul": None}
    prepared = objects.create(rt, objects.widget(found, status={"phase": "A"}))
    assert prepared.mark is rt.custom.marks.kept
    body = seal(encode_custom(prepared.object), 7)
    assert PresentSchema(rt).keeps(Entry(Key(rt.resource, "n", "a"), "u", 7, 7, 1, body, {}, {}))


async def test_an_entry_that_was_made_for_the_request_is_shown_as_it_is() -> None:
    """After a webhook's conversion no defaults are set."""
    schema = {"type": "object", "properties": {"size": {**TEXT, "default": "L"}}}
    both = [version(name, schema={"openAPIV3Schema": schema}) for name in ("v1", "v2")]
    _, v2 = all_types(established(definition(*both)))
    entry = entry_of("a", apiVersion="example.com/v2")
    assert orjson.loads(EntryEncoder(v2, JSON).one(entry))["size"] == "L"
    entry.mark_as(v2.custom.marks.kept)
    assert EntryEncoder(v2, JSON).one(entry) == entry.json + b"\n"
    pretty = Representation(media_type="application/json", pretty=True)
    assert "size" not in orjson.loads(EntryEncoder(v2, pretty).one(entry))
    listed = body_of(await EntryEncoder(v2, JSON).many(Listing(entries=(entry,), revision=9)))
    assert "size" not in listed["items"][0]
    assert "size" in orjson.loads(EntryEncoder(v2, JSON).object(entry.object()))
    by_webhook = definition(*both)
    by_webhook["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {}}
    _, v2 = all_types(established(by_webhook))
    assert "size" not in orjson.loads(EntryEncoder(v2, JSON).object(entry.object()))


def test_a_bookmark_has_no_defaults() -> None:
    (rt,) = widgets({"size": {**TEXT, "default": "L"}})
    frame = orjson.loads(EventEncoder(rt, TABLE).bookmark(5))
    assert frame["object"]["rows"][0]["cells"] == ["", None]
