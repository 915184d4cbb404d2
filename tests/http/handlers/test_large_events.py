"""Watch events of large objects: which of them are encoded in a thread."""

from __future__ import annotations

from datetime import UTC, datetime

from kubechronicle.actors.large_work import LARGE_BYTES
from kubechronicle.api.codecs.negotiate import JSON, PROTOBUF, Representation
from kubechronicle.api.registry.registry import builtin_registry
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.records import Key, Operation
from kubechronicle.http.representation.event_encoder import EventEncoder, is_slow


def test_events_of_large_objects_are_slow_unless_their_bytes_are_spliced() -> None:
    rt = next(each for each in builtin_registry() if each.resource == "configmaps")
    key = Key("configmaps", "default", "a")
    entries = [Entry(key, "", 5, 5, 1, b"{}" + b" " * size, {}, {}) for size in (0, LARGE_BYTES)]
    events = [Event(5, Operation.UPDATE, entry, entry, datetime.now(UTC)) for entry in entries]
    for media_type in (JSON, PROTOBUF):
        encoder = EventEncoder(rt, Representation(media_type=media_type))
        assert not is_slow(encoder, events[:1])
        assert is_slow(encoder, events) is (media_type == PROTOBUF)
