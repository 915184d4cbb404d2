"""The budget of a document: the same bounds in JSON, YAML and protobuf, and for JSON within protobuf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from kubechronicle.api.codecs import json, protobuf, yaml
from kubechronicle.api.codecs.budget import MAX_CONTAINERS, MAX_KEYS, MAX_PARTS, require_json_within
from kubechronicle.api.codecs.errors import TooManyPartsError

CONTAINERS, KEYS = f"more than {MAX_CONTAINERS} lists and objects", f"more than {MAX_KEYS} keys"


def excess(data: bytes) -> str:
    try:
        require_json_within(data)
    except TooManyPartsError as error:
        return error.message.removeprefix("the body has ")
    return ""


def test_lists_and_objects_are_counted() -> None:
    most = [{} for _ in range(MAX_CONTAINERS - 1)]
    assert excess(orjson.dumps(most)) == ""
    assert excess(orjson.dumps([*most, []])) == CONTAINERS


def test_keys_are_counted() -> None:
    most = {str(number): 0 for number in range(MAX_KEYS)}
    assert excess(orjson.dumps(most)) == ""
    assert excess(orjson.dumps({**most, "": 0})) == KEYS


def test_text_in_strings_is_not_counted() -> None:
    text = '[{"a":' * MAX_CONTAINERS
    assert excess(orjson.dumps({"a": text, "b": ['\\"[']})) == ""
    assert excess(orjson.dumps({"a": text, "b": [[]] * MAX_CONTAINERS})) == CONTAINERS


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes((value & 0x7F | 0x80,)), value >> 7
    return out + bytes((value,))


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\0" + field(1, field(1, api_version.encode()) + field(2, kind.encode())) + field(2, raw)


def review(requirements: bytes) -> bytes:
    """Return a review whose label selector has these requirements."""
    return message("authorization.k8s.io/v1", "SelfSubjectAccessReview", field(2, field(1, field(9, requirements))))


MANY = MAX_PARTS + 1
PROTOBUF = {
    "empty messages": review(field(2, b"") * MANY),
    "empty messages with an unusual length": review(b"\x12\x80\0" * MANY),
    "messages merged into one": message("v1", "Pod", field(2, field(14, b"") * MANY)),
    "entries of a map": message("v1", "ConfigMap", field(2, b"") * MANY),
    "unknown fields": message("v1", "ConfigMap", b"\xf8\x01\0" * MANY),
    "unknown fields of the envelope": b"k8s\0" + b"\xf8\x01\0" * MANY,
    "raw JSON": message("apps/v1", "ControllerRevision", field(2, field(1, b"[" + b"{}," * MANY + b"{}]"))),
    "many raw JSON": message("v1", "ConfigMap", field(1, field(17, field(7, field(1, b'{"f:a":{}}'))) * (MANY // 2))),
    "messages within unusual tags": message(
        "v1", "Pod", b"\x92\x80\0" + field(14, b"")[:0] + varint(2 * MANY) + field(14, b"") * MANY
    ),
}


@pytest.mark.parametrize("case", PROTOBUF)
def test_what_a_protobuf_message_makes_is_counted(case: str) -> None:
    with pytest.raises(TooManyPartsError, match=f"more than ({MAX_PARTS} messages and fields|{MAX_KEYS} keys)"):
        protobuf.decode(PROTOBUF[case])


def test_each_document_has_a_budget_of_its_own() -> None:
    half = review(field(2, b"") * (MAX_KEYS // 4))
    for _ in range(3):
        protobuf.decode(half)


MANY_CONTAINERS = MAX_CONTAINERS + 1
YAML: dict[str, tuple[bytes, str]] = {
    "lists in block style": (b"a:\n" + b"- - 1\n" * MANY_CONTAINERS, CONTAINERS),
    "lists in flow style": (b"a: [" + b"[],\n" * MANY_CONTAINERS + b"]", CONTAINERS),
    "keys in block style": (b"".join(b"k%d: 1\n" % number for number in range(MAX_KEYS + 1)), KEYS),
    "JSON": (b"[" + b"[],\n" * MANY_CONTAINERS + b"[]]", CONTAINERS),
}


@pytest.mark.parametrize("case", YAML)
def test_what_a_yaml_document_makes_is_counted(case: str) -> None:
    data, excess = YAML[case]
    with pytest.raises(TooManyPartsError, match=excess):
        yaml.decode_value(data)


@pytest.mark.parametrize("decode", [json.decode_value, json.loads, yaml.decode_plain, yaml.decode_nearly_plain])
def test_every_reader_of_json_counts(decode: Callable[[bytes], Any]) -> None:
    with pytest.raises(TooManyPartsError):
        decode(b'{"a":[' + b"{}," * MANY_CONTAINERS + b"{}]}")
