"""The field sets of stored objects: decoded as orjson does, shared, and written as they were read."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kubechronicle.api.meta import stored_contents
from kubechronicle.api.meta.encoding import encode_custom

FIELDS = {"f:spec": {f"f:field{n}": {} for n in range(40)}}


def entry(manager: str = "a", fields: Any = FIELDS) -> dict[str, Any]:
    return {
        "apiVersion": "g/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        "manager": manager,
        "operation": "Apply",
    }


def stored(*entries: Any, spec: Any = None) -> bytes:
    meta = {"managedFields": list(entries), "name": "a", "uid": "u"}
    obj = {"apiVersion": "g/v1", "kind": "K", "metadata": meta, "spec": spec}
    return orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)


NESTED = {"f:a": {'k:{"name":"},\\"manager\\":\\""}': {".": {}}}}


@pytest.mark.parametrize(
    "text",
    [
        stored(entry()),
        stored(entry("a"), entry("b", {"f:metadata": {"f:labels": {}}}), entry("c")),
        stored(entry(fields=NESTED), entry(fields={})),
        stored(),
        stored(entry("")),
        stored({name: value for name, value in entry().items() if name != "manager"}, entry("b")),
        stored(entry(), spec={"fieldsV1": {"a": 1}, "manager": "x"}),
        stored(entry(), spec={"fieldsV1": [{"a": 1}], "manager": "x"}),
        stored(entry(), spec='"fieldsV1":{},"manager":"'),
        stored(entry(fields=3), entry(fields=0), entry()),
        stored(entry(fields=0), spec={"fieldsV1": {}, "manager": "x"}),
        stored(entry(), spec={'x"fieldsV1': {}, "manager": "y"}),
        stored(3),
        orjson.dumps({"metadata": {"managedFields": entry()}}),
        orjson.dumps({"metadata": [entry()]}),
        orjson.dumps({"a": {"fieldsV1": {}, "manager": "x"}}),
    ],
)
def test_objects_are_decoded_as_by_orjson(text: bytes) -> None:
    for _ in range(2):
        assert stored_contents.decode(text) == orjson.loads(text)


def test_equal_sets_are_decoded_once() -> None:
    one, other = (stored_contents.decode(stored(entry("a"), entry("b"), spec=n))["metadata"] for n in range(2))
    found = [each["fieldsV1"] for meta in (one, other) for each in meta["managedFields"]]
    assert all(fields is found[0] for fields in found)


def test_a_set_is_written_as_it_was_read() -> None:
    text = stored(entry("a"), entry("b", {"f:other": {}}))
    obj = stored_contents.decode(text)
    first, second = stored_contents.as_written(obj["metadata"]["managedFields"])
    assert orjson.dumps(first["fieldsV1"]) == orjson.dumps(FIELDS, option=orjson.OPT_SORT_KEYS)
    assert (first["fieldsV1"].__class__, second["fieldsV1"].__class__) == (orjson.Fragment, dict)
    assert orjson.loads(encode_custom(obj)) == orjson.loads(text)
    obj["metadata"]["managedFields"][0] = entry("a", {**FIELDS, "f:more": {}})
    assert b"f:more" in encode_custom(obj)
