"""Audit events: their JSON, the objects spliced into it, truncation, and the legacy format."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from kubechronicle.api.audit.events import AuditEvent, Payload, json_bytes, json_of, legacy_line, shown_times
from kubechronicle.api.codecs import protobuf

MANAGED = {"kind": "A", "metadata": {"name": "a", "managedFields": [{"manager": "m"}]}}


def values(**more: Any) -> dict[str, Any]:
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "auditID": "id",
        "stage": "ResponseComplete",
        "requestURI": '/api?a="b"',
        "verb": "get",
        "user": {"username": "jane", "groups": ["ops", "dev"]},
        **more,
        "requestReceivedTimestamp": "1970-01-01T00:00:00.500000Z",
        "stageTimestamp": "2023-11-14T22:13:20.123456Z",
    }


def event(values: dict[str, Any], *objects: Payload) -> AuditEvent:
    return AuditEvent(json_bytes(values)[:-1], b"}", *objects)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (Payload(b'{"a":1}\n'), b'{"a":1}'),
        (Payload(b'{\n  "a": 1\n}'), b'{"a":1}'),
        (Payload(gzip.compress(b'{"a":1}'), gzipped=True), b'{"a":1}'),
        (Payload(b"no gzip", gzipped=True), None),
        (Payload(b"a: 1\nb: [x]\n", "application/yaml"), b'{"a":1,"b":["x"]}'),
        (Payload(b'{"a": 1}', "application/apply-patch+yaml"), b'{"a": 1}'),
        (Payload(b'[{"op":"add"}]', "application/json-patch+json", checked=False), b'[{"op":"add"}]'),
        (Payload(b'{"broken', "application/merge-patch+json", checked=False), b'"{\\"broken"'),
        (Payload(b"\xff", "application/merge-patch+json", checked=False), '"�"'.encode()),
        (Payload(b"some log", "text/plain"), None),
        (Payload(b""), None),
    ],
)
def test_bodies_become_json_on_one_line(payload: Payload, expected: bytes | None) -> None:
    assert json_of(payload) == expected


def test_protobuf_becomes_json() -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    found = json_of(Payload(protobuf.encode(obj), "application/vnd.kubernetes.protobuf"))
    assert found is not None
    assert json.loads(found)["data"] == {"x": "1"}


@pytest.mark.parametrize(
    "obj", [MANAGED, {"kind": "AList", "items": [MANAGED]}, {"kind": "Table", "rows": [{"object": MANAGED}]}]
)
def test_managed_fields_are_removed_wherever_they_are(obj: Any) -> None:
    found = json_of(Payload(json.dumps(obj).encode()), omit_managed_fields=True)
    assert found is not None
    assert b"managedFields" not in found
    assert b'"name":"a"' in found


def test_objects_are_in_the_event() -> None:
    made = event(values(), Payload(b'{"a":1}'), Payload(b"text", "text/plain"))
    found = json.loads(made.encoded())
    assert found["requestObject"] == {"a": 1}
    assert "responseObject" not in found
    assert found["requestReceivedTimestamp"] == "1970-01-01T00:00:00.500000Z"
    assert list(found)[:3] == ["kind", "apiVersion", "level"]
    assert b"\n" not in made.encoded()
    line = AuditEvent.of(made.encoded() + b"\n")
    assert line.encoded() == made.encoded()
    assert "requestObject" not in line.facts()


def test_half_a_surrogate_pair_costs_a_character_not_the_event() -> None:
    assert json.loads(event(values(userAgent="a\ud800b")).encoded())["userAgent"] == "a?b"


def test_a_long_event_loses_its_objects_first() -> None:
    made = event(values(), Payload(json.dumps({"a": "x" * 5000}).encode()))
    assert len(made.fitted(10_000)) > 5000
    short = json.loads(made.fitted(1000))
    assert short["annotations"] == {"audit.k8s.io/truncated": "true"}
    assert "requestObject" not in short
    assert made.fitted(100) == b""


def test_an_event_without_objects_is_not_marked() -> None:
    assert event(values() | {"level": "Metadata"}).fitted(10) == b""


def test_the_legacy_format() -> None:
    assert legacy_line(values(responseStatus={"code": 200}, sourceIPs=["10.0.0.1"])) == (
        '1970-01-01T00:00:00.5Z AUDIT: id="id" stage="ResponseComplete" ip="10.0.0.1" method="get" user="jane" '
        'groups="\\"ops\\",\\"dev\\"" as="<self>" asgroups="<lookup>" user-agent="" namespace="<none>" '
        'uri="/api?a=\\"b\\"" response="200"'
    )
    bare = legacy_line(values() | {"user": {}, "impersonatedUser": {"username": "joe", "groups": ["a"]}})
    assert 'ip="<unknown>" method="get" user="<none>" groups="<none>" as="joe" asgroups="\\"a\\""' in bare
    assert bare.endswith('response="<deferred>"')


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        (0.0, b"1970-01-01T00:00:00.000000Z"),
        (1_700_000_000.25, b"2023-11-14T22:13:20.250000Z"),
        (1_700_000_000.9999998, b"2023-11-14T22:13:20.999999Z"),
    ],
)
def test_times_have_six_digits_of_a_second(moment: float, shown: bytes) -> None:
    expected = b',"requestReceivedTimestamp":"%b","stageTimestamp":"1970-01-01T00:00:00.500000Z"' % shown
    assert shown_times(moment, 0.5) == expected
