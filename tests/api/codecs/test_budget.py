"""The budget of a document: the same bounds in JSON, YAML and protobuf, and for JSON within protobuf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from kubechronicle.api.codecs import budget, json, protobuf, yaml
from kubechronicle.api.codecs.budget import MAX_CONTAINERS, MAX_KEYS, MAX_VALUES, require_json_within, weight
from kubechronicle.api.codecs.errors import DecodeError, TooManyPartsError

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


def test_values_are_counted() -> None:
    most = [0] * MAX_VALUES
    assert excess(orjson.dumps(most)) == ""
    assert excess(orjson.dumps([*most, 0, 0])) == f"more than {MAX_VALUES} values"
    assert excess(orjson.dumps({"a": "," * 2 * MAX_VALUES})) == ""


def test_a_document_that_is_too_deep_is_left_to_its_decoder() -> None:
    deep = b"[" * 2 * MAX_CONTAINERS
    for data in (deep + deep.replace(b"[", b"]"), deep, b'{"a":"]","b":' + deep):
        assert excess(data) == ""
        with pytest.raises(DecodeError, match="depth"):
            json.decode_value(data)
    wide = b"[" + b"[]," * 2 * MAX_CONTAINERS
    assert excess(wide + deep) == CONTAINERS


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


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the bounds a hundred times, and apply them to small documents, too."""
    for module, name in ((budget, "MAX_VALUES"), (yaml, "MAX_VALUES"), (budget, "MAX_KEYS"), (protobuf, "MAX_KEYS")):
        monkeypatch.setattr(module, name, getattr(module, name) // 100)
    monkeypatch.setattr(budget, "MAX_CONTAINERS", MAX_CONTAINERS // 100)
    monkeypatch.setattr(budget, "SMALL", 0)
    monkeypatch.setattr(protobuf, "SMALL_MESSAGE", 0)


MANY = MAX_VALUES // 100 + 1
PROTOBUF = {
    "empty messages": review(field(2, b"") * MANY),
    "empty messages with an unusual length": review(b"\x12\x80\0" * MANY),
    "messages merged into one": message("v1", "Pod", field(2, field(14, b"") * MANY)),
    "strings": message("v1", "Pod", field(1, field(14, b"") * MANY)),
    "entries of a map": message("v1", "ConfigMap", field(2, b"") * MANY),
    "unknown fields": message("v1", "ConfigMap", b"\xf8\x01\0" * MANY),
    "unknown fields of the envelope": b"k8s\0" + b"\xf8\x01\0" * MANY,
    "raw JSON": message("apps/v1", "ControllerRevision", field(2, field(1, b"[" + b"{}," * MANY + b"{}]"))),
    "many raw JSON": message("v1", "ConfigMap", field(1, field(17, field(7, field(1, b'{"f:a":{}}'))) * (MANY // 2))),
    "strings behind an unusual tag": message("v1", "Pod", b"\x8a\x80\0" + varint(2 * MANY) + field(14, b"") * MANY),
}


@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("case", PROTOBUF)
def test_what_a_protobuf_message_makes_is_counted(case: str) -> None:
    with pytest.raises(TooManyPartsError, match=r"the body has more than (3500 messages and fields|1500 keys)"):
        protobuf.decode(PROTOBUF[case])


@pytest.mark.usefixtures("low")
def test_each_document_has_a_budget_of_its_own() -> None:
    for _ in range(3):
        protobuf.decode(review(field(2, b"") * 500))


def test_the_two_forms_of_protobuf_decoders_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "ports": [{}]}]}}
    revision = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": template, "revision": 1}
    quantities = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"cpu": "1"}}}
    for obj in (revision, quantities, {"apiVersion": "v1", "kind": "Pod", **template}):
        data = protobuf.encode(obj)
        plain = protobuf.decode(data)
        with monkeypatch.context() as patched:
            patched.setattr(protobuf, "SMALL_MESSAGE", 0)
            assert protobuf.decode(data) == plain


YAML = {
    "lists in block style": (b"a:\n" + b"- - 1\n" * 3001, "3000 lists and objects"),
    "lists in flow style": (b"a: [" + b"[],\n" * 3001 + b"]", "3000 lists and objects"),
    "keys in block style": (b"".join(b"k%d: 1\n" % number for number in range(1501)), "1500 keys"),
    "values": (b"a:\n" + b"- 1\n" * 3501, "3500 values"),
    "JSON": (b"[" + b"[],\n" * 3001 + b"[]]", "3000 lists and objects"),
}


@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("case", YAML)
def test_what_a_yaml_document_makes_is_counted(case: str) -> None:
    data, excess = YAML[case]
    with pytest.raises(TooManyPartsError, match=f"more than {excess}"):
        yaml.decode_value(data)


@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("decode", [json.decode_value, json.loads, yaml.decode_plain, yaml.decode_nearly_plain])
def test_every_reader_of_json_counts(decode: Callable[[bytes], Any]) -> None:
    with pytest.raises(TooManyPartsError):
        decode(b'{"a":[' + b"{}," * 3000 + b"{}]}")


def test_empty_items_weigh_more_than_their_bytes() -> None:
    labels = orjson.dumps({"labels": {f"app.kubernetes.io/{number}": "a value" for number in range(100)}})
    assert weight(labels) == len(labels)
    assert weight(b"[" + b"{}," * 5000 + b"{}]") > 90_000
    assert weight(field(2, b"") * 5000, protobuf=True) > 80_000


def test_yaml_weighs_as_much_as_its_events() -> None:
    assert weight(b"[" + b"1," * 5000 + b"1]", yaml=True) > 90_000
    assert weight(b"- " * 5000 + b"1", yaml=True) > 90_000
    assert weight(b'a: "' + b"text " * 5000 + b'"', yaml=True) < 30_000
    assert weight(b"a: &a [1, 1]\nb: [*a, *a]\n", yaml=True) > 1_000_000
    assert weight(b"schedule: '* * * * *'\nrun: a && b\n", yaml=True) < 1000
