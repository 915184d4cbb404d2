"""The protobuf codec: published golden vectors if present, round trips, malformed bytes, framing."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vectors import VECTORS

from kubechronicle.api.codecs import protobuf, table
from kubechronicle.api.codecs.errors import DecodeError, EncodeError
from kubechronicle.api.codecs.values import MAX_DEPTH, varint

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a"},
    "spec": {"containers": [{"name": "c", "resources": {}}]},
    "status": {},
}


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_golden_vector(path: Path) -> None:
    data, obj = path.read_bytes(), json.loads(path.with_suffix(".json").read_bytes())
    if obj.get("kind"):
        assert protobuf.decode(data) == obj
        assert protobuf.encode(obj) == data
    else:  # a WatchEvent: a bare message in an envelope without a kind
        raw = protobuf.encode_message("meta/v1.WatchEvent", obj)
        assert protobuf.envelope("", "", raw) == data
        assert protobuf.decode_message("meta/v1.WatchEvent", raw) == obj


def test_every_message_of_the_table_compiles_and_is_stable() -> None:
    for name in table.messages():
        if "JSONSchemaPropsOr" in name:
            continue  # not an object in JSON
        empty = protobuf.encode_message(name, {})
        zero = protobuf.decode_message(name, empty)
        assert protobuf.encode_message(name, zero) == empty, name
        assert protobuf.decode_message(name, b"") == zero, name


def test_field_numbers_are_unique_and_ascending() -> None:
    for name in table.messages():
        numbers = [field.number for field in table.message_named(name).fields]
        assert numbers == sorted(set(numbers)), name


@pytest.mark.parametrize(
    ("api_version", "kind", "known"),
    [
        ("v1", "Pod", True),
        ("v1", "PodList", True),
        ("apps/v1", "DeleteOptions", True),
        ("v1", "Status", True),
        ("apps/v1", "Status", False),
        ("meta.k8s.io/v1", "PartialObjectMetadataList", True),
        ("meta.k8s.io/v1beta1", "PartialObjectMetadata", True),
        ("meta.k8s.io/v1", "Table", False),
        ("example.com/v1", "Widget", False),
        ("policy/v1", "Eviction", True),
        ("autoscaling/v1", "Scale", True),
        ("authentication.k8s.io/v1", "TokenRequest", True),
        ("apiregistration.k8s.io/v1", "APIService", True),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", True),
    ],
)
def test_kinds_with_a_message(api_version: str, kind: str, known: bool) -> None:
    assert protobuf.supports(api_version, kind) is known


def test_unknown_fields_are_left_out() -> None:
    assert protobuf.encode({**POD, "extra": 1, "spec": {**POD["spec"], "nope": {}}}) == protobuf.encode(POD)  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "obj",
    [
        {"apiVersion": "example.com/v1", "kind": "Widget"},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 5}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": []},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"ports": [{"containerPort": "x"}]}]}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"creationTimestamp": "yesterday"}},
        {"apiVersion": "v1", "kind": "Secret", "data": {"a": "*"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "\ud800"}},
    ],
)
def test_objects_without_an_encoding(obj: dict[str, Any]) -> None:
    with pytest.raises(EncodeError):
        protobuf.encode(obj)


# -- broken and unusual bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty data"),
        (b"k8s\0", "empty body"),
        (b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b"k8s\0\x0a\xff", "unexpected EOF"),
        (b"k8s\0\x0f", "proto: illegal wireType 7"),
        (protobuf.envelope("v1", "Nope", b""), 'no kind "Nope" is registered for version "v1"'),
        (protobuf.envelope("v1", "", b""), "Object 'Kind' is missing in the protobuf body"),
        (protobuf.envelope("v1", "Pod", b"\x08\x01"), "proto: wrong wireType = 0 for field Metadata"),
        (protobuf.envelope("v1", "Pod", b"\x0a\x05\x0a"), "unexpected EOF"),
        (protobuf.envelope("v1", "Pod", b"\x0c"), "proto: unexpected end of group"),
        (protobuf.envelope("v1", "Pod", b"\xff" * 11), "proto: integer overflow"),
    ],
)
def test_broken_bodies(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        protobuf.decode(data)
    assert message in str(caught.value)


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_mangled_bytes_decode_or_are_rejected(data: st.DataObject) -> None:
    body = bytearray(protobuf.encode(_FULL))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    with contextlib.suppress(DecodeError):
        protobuf.decode(bytes(body))


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_decode_or_are_rejected(raw: bytes) -> None:
    for name in ("core/v1.Pod", "apiextensions/v1.CustomResourceDefinition", "meta/v1.Status", "core/v1.Secret"):
        with contextlib.suppress(DecodeError):
            protobuf.decode_message(name, raw)


def test_every_truncation_is_rejected() -> None:
    body = protobuf.encode_raw(_FULL)
    for end in range(1, len(body)):
        try:
            protobuf.decode_message("core/v1.Pod", body[:end])
        except DecodeError:
            continue
        # A truncation that decodes ends right behind a field of the outermost message.
        assert protobuf.encode_raw({**protobuf.decode_message("core/v1.Pod", body[:end]), **_KIND})[:end] == body[:end]


def test_deep_nesting_is_rejected() -> None:
    schema = b""
    fields = {field.name: field for field in table.message_named("apiextensions/v1.JSONSchemaProps").fields}
    tag = varint(fields["not"].tag).encode("latin-1")
    for _ in range(MAX_DEPTH * 3):
        schema = tag + protobuf._size(schema) + schema
    with pytest.raises(DecodeError, match="max depth"):
        protobuf.decode_message("apiextensions/v1.JSONSchemaProps", schema)


_KIND = {"apiVersion": "v1", "kind": "Pod"}


def test_fields_in_any_order_unknown_and_repeated() -> None:
    name, again, generation = b"\x0a\x01a", b"\x0a\x01b", b"\x38\x05"
    unknown = b"\x9a\x7d\x03xyz" + b"\xfd\x7f\x01\x02\x03\x04" + b"\xa3\x7d\x08\x01\xa4\x7d"
    meta = generation + unknown + name + again
    raw = b"\x0a" + bytes([len(meta)]) + meta
    pod = protobuf.decode_message("core/v1.Pod", raw)
    assert pod["metadata"] == {"name": "b", "generation": 5}


def test_repeated_messages_are_merged_and_lists_joined() -> None:
    first = protobuf.encode_message(
        "core/v1.Pod", {"metadata": {"name": "a", "labels": {"x": "1"}, "finalizers": ["p"]}}
    )
    second = protobuf.encode_message("core/v1.Pod", {"metadata": {"generateName": "g", "labels": {"y": "2"}}})
    merged = protobuf.decode_message("core/v1.Pod", first + second)["metadata"]
    assert merged == {"generateName": "g", "labels": {"x": "1", "y": "2"}, "finalizers": ["p"]}


def test_packed_numbers() -> None:
    # PodSecurityContext.supplementalGroups, field 4, int64
    expected = {"supplementalGroups": [1, 300]}
    assert protobuf.decode_message("core/v1.PodSecurityContext", b"\x22\x03\x01\xac\x02") == expected
    assert protobuf.decode_message("core/v1.PodSecurityContext", b"\x20\x01\x20\xac\x02") == expected


def test_text_that_is_not_utf8_is_replaced() -> None:
    assert protobuf.decode_message("meta/v1.ObjectMeta", b"\x0a\x02a\xff") == {"name": "a\ufffd"}


# -- lists and watches -----------------------------------------------------------------------------------------------


def test_a_list_from_parts_equals_the_list_as_a_whole() -> None:
    items = [{**POD, "metadata": {"name": name}} for name in "abc"]
    whole = {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": items}
    parts = protobuf.encode_list("v1", "PodList", {"resourceVersion": "7"}, map(protobuf.encode_raw, items))
    assert parts == protobuf.encode(whole)
    assert [item["metadata"]["name"] for item in protobuf.decode(parts)["items"]] == ["a", "b", "c"]
    empty = protobuf.decode(protobuf.encode_list("v1", "PodList", {}, []))
    assert empty == {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": None}


def test_a_watch_event_is_a_frame_around_an_enveloped_object() -> None:
    body = protobuf.encode(POD)
    frame = protobuf.encode_watch_event("ADDED", body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    kind, extension = b"\x0a\x05ADDED", b"\x0a" + protobuf._size(body) + body
    assert frame[4:] == kind + b"\x12" + protobuf._size(extension) + extension


def test_an_unset_type_takes_the_default() -> None:
    body = protobuf.envelope("", "", protobuf.encode_raw(POD))
    assert protobuf.decode(body, default_api_version="v1", default_kind="Pod") == POD


def test_an_envelope_may_be_written_unusually() -> None:
    raw = protobuf.encode_raw(POD)
    size = protobuf._size(raw)
    meta = b"\x12\x03Pod\x0a\x02v1"
    for body in (
        b"k8s\0\x12" + size + raw + b"\x0a\x09" + meta,
        b"k8s\0\x0a\x09" + meta + b"\x12" + size + raw,
        b"k8s\0\x0a\x09" + meta + b"\x12" + size + raw + b"\x1a\0\x22\0\x2a\x01x",
    ):
        assert protobuf.decode(body) == POD
    assert protobuf.decode(b"k8s\0\x0a\x09" + meta)["metadata"] == {}


# -- round trips -----------------------------------------------------------------------------------------------------

# Without the first second: for Go that is the unset time, which becomes null.
TIMES = st.datetimes(min_value=datetime(1, 1, 2))

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_NUMBERS = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1)}
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": _TEXT.filter(bool),
    "bool": st.just(True),
    "double": st.floats(-1e9, 1e9).filter(bool),
    "bytes": st.just("AAEC"),
    "time": TIMES.map(lambda moment: moment.replace(microsecond=0).isoformat() + "Z"),
    "microtime": TIMES.map(lambda moment: moment.isoformat(timespec="microseconds") + "Z"),
    "quantity": st.sampled_from(["0", "100m", "1Gi"]),
    "intorstring": st.integers(-(1 << 31), (1 << 31) - 1) | _TEXT,
    "rawextension": st.just({"apiVersion": "v1", "kind": "X", "l": [1, None, {"a": 1.5}]}),
    "rawjson": st.sampled_from([1, "a", [1], {"a": None}, False]),
    "fieldsv1": st.just({"f:a": {".": {}}}),
    "strings": st.lists(_TEXT, min_size=1, max_size=2),
}


@st.composite
def _message(draw: st.DrawFn, name: str, depth: int = 0) -> dict[str, Any]:
    """Generate objects of a message with any of its fields set to non-zero values."""
    out: dict[str, Any] = {}
    for field in table.message_named(name).fields:
        if not field.name:
            out.update(draw(_message(field.type, depth)))
        elif draw(st.integers(0, depth + 1)) == 0 and (strategy := _strategy(field.type, depth)) is not None:
            if field.map:
                out[field.name] = draw(st.dictionaries(_TEXT, strategy, min_size=1, max_size=2))
            elif field.repeated:
                out[field.name] = draw(st.lists(strategy, min_size=1, max_size=2))
            else:
                out[field.name] = draw(strategy)
    return out


def _strategy(kind: str, depth: int) -> st.SearchStrategy[Any] | None:
    if kind in _NUMBERS:
        return st.integers(*_NUMBERS[kind]).filter(bool)
    if kind in _VALUES:
        return _VALUES[kind]
    return _message(kind, depth + 1) if depth < 4 and "JSONSchemaPropsOr" not in kind else None


@pytest.mark.parametrize("name", ["core/v1.Pod", "core/v1.Service", "apps/v1.Deployment", "events/v1.Event"])
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_round_trip(name: str, data: st.DataObject) -> None:
    obj = data.draw(_message(name))
    encoded = protobuf.encode_message(name, obj)
    decoded = protobuf.decode_message(name, encoded)
    assert protobuf.encode_message(name, decoded) == encoded
    assert _contains(decoded, obj)


def _contains(whole: Any, part: Any) -> bool:
    """Return True if `whole` contains everything in `part`."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and _contains(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(_contains, whole, part))
    return bool(whole == part)


_FULL: dict[str, Any] = {
    **_KIND,
    "metadata": {
        "name": "a",
        "labels": {"a": "b"},
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "managedFields": [{"manager": "m", "time": "2026-01-02T03:04:05Z", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "containers": [
            {
                "name": "c",
                "resources": {"limits": {"cpu": "1"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 10},
            }
        ],
        "tolerations": [{"key": "k", "tolerationSeconds": 300}],
        "overhead": {"cpu": "1m"},
        "hostNetwork": True,
    },
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"},
}
