"""Entries: equal with and without parsing of the object, and not tracked by the garbage collector."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from kubechronicle.api.selectors.field_selectors import describe, plain
from kubechronicle.eventlog.entries import NOTHING, Entry, entry_of
from kubechronicle.eventlog.records import Key, Operation, Record


def record(resource: str, obj: dict[str, Any]) -> Record:
    metadata = obj["metadata"]
    return Record(
        revision=7,
        key=Key(resource, metadata.get("namespace", ""), metadata["name"]),
        uid="u",
        create_revision=7,
        version=1,
        previous_revision=0,
        operation=Operation.CREATE,
        body=orjson.dumps(obj),
        committed_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def columns(entry: Entry) -> tuple[Any, ...]:
    return entry.key, entry.revision, entry.json, dict(entry.labels), dict(entry.fields)


OBJECTS = [
    ("configmaps", {"metadata": {"name": "a", "namespace": "n"}, "data": {"k": "v"}}),
    ("configmaps", {"metadata": {"name": "a", "namespace": "n", "labels": {"app": "web"}}}),
    ("configmaps", {"metadata": {"name": "a", "namespace": "n", "labels": {}}, "data": {"k": "v"}}),
    ("configmaps", {"metadata": {"name": "a", "namespace": "n"}, "data": {"k": '"labels":{"app":"web"}'}}),
    ("configmaps", {"metadata": {"name": "a", "namespace": "n", "annotations": {"labels": "none"}}}),
    ("persistentvolumes", {"metadata": {"name": "a"}, "spec": {"labels": {"app": "web"}}}),
    ("secrets", {"metadata": {"name": "a", "namespace": "n"}, "type": "Opaque"}),
    ("pods", {"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "one"}}),
]


@pytest.mark.parametrize(("resource", "obj"), OBJECTS)
def test_an_entry_is_equal_with_and_without_parsing(resource: str, obj: dict[str, Any]) -> None:
    obj = {"apiVersion": "v1", "kind": "Thing"} | obj
    assert columns(entry_of(record(resource, obj), describe, plain)) == columns(
        entry_of(record(resource, obj), describe)
    )


def test_an_object_without_labels_is_not_parsed_if_only_names_are_selectable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[bytes] = []

    def loads(body: bytes) -> dict[str, Any]:
        parsed.append(body)
        return {}

    monkeypatch.setattr("kubechronicle.eventlog.entries.orjson.loads", loads)
    entry_of(record("configmaps", {"metadata": {"name": "a", "namespace": "n"}}), describe, plain)
    assert not parsed
    entry_of(record("configmaps", {"metadata": {"name": "a", "labels": {"app": "web"}}}), describe, plain)
    entry_of(record("secrets", {"metadata": {"name": "a"}}), describe, plain)
    assert len(parsed) == 2


def test_the_garbage_collector_does_not_track_entries() -> None:
    entry = entry_of(record("configmaps", {"metadata": {"name": "a"}}), describe, plain)
    assert not gc.is_tracked(entry)
    assert entry.labels is NOTHING
    with pytest.raises(AttributeError):
        entry.revision = 8  # type: ignore[misc]
