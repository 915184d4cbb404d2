"""The large values of stored objects: decoded as orjson does, shared, and written as they are stored."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from kubechronicle.api.codecs import unstructured
from kubechronicle.api.meta import stored_contents
from kubechronicle.api.meta.encoding import encode_custom
from kubechronicle.api.meta.stored_contents import MOST
from kubechronicle.eventlog.entries import seal

SPEC = {"texts": [f"text {n}" for n in range(200)], "html": "<&>", "number": 1e16, "status": {"of": "spec"}}


def obj(**more: Any) -> dict[str, Any]:
    """Return an object with the metadata, and other fields."""
    meta = {"name": "a", "uid": "u", **more.pop("metadata", {})}
    return {"apiVersion": "g/v1", "kind": "K", "metadata": meta, **more}


def sealed(given: dict[str, Any]) -> bytes:
    return seal(encode_custom(given), 7)


@pytest.mark.parametrize(
    "given",
    [
        obj(spec=SPEC),
        obj(spec=SPEC, status={"phase": "A"}),
        obj(spec=SPEC, status={"status": {"a": 1}}),
        obj(spec=SPEC, status="text"),
        obj(spec=SPEC, template=SPEC),
        obj(spec=SPEC, status={"phase": "A"}, zone={"a": 1}),
        obj(spec=SPEC, metadata={"labels": {"resourceVersion": "x", "uid": "y"}}),
        obj(spec=SPEC, metadata={"annotations": {"resourceVersion": '"},"spec":'}}),
        obj(spec=SPEC, metadata={"annotations": {"a": '"resourceVersion":"1"},"spec":{'}}),
        obj(spec=SPEC, metadata={"ownerReferences": [{"uid": "x"}, {"uid": "y"}]}),
        obj(rules=SPEC),
        obj(spec={"other": SPEC}),
        obj(spec={}),
        obj(),
    ],
    ids=lambda given: str([*given, *given["metadata"]]),
)
def test_objects_are_decoded_as_by_orjson(given: dict[str, Any]) -> None:
    text = sealed(given)
    assert stored_contents.decode(text) == orjson.loads(text)
    stored_contents.note(given)
    for _ in range(2):
        assert stored_contents.decode(text) == orjson.loads(text)
        assert sealed(given) == text


def test_a_noted_value_is_shared_and_written_as_it_is_stored() -> None:
    first = obj(spec={**SPEC, "own": 1})
    text = sealed(first)
    stored_contents.note(first)
    found = stored_contents.decode(text)
    assert found["spec"] is first["spec"]
    again = obj(spec={**SPEC, "own": 1})
    stored_contents.note(again)
    assert again["spec"] is first["spec"]
    written = stored_contents.with_texts(found)
    assert written["spec"].__class__ is orjson.Fragment
    assert orjson.dumps(written["spec"]) == unstructured.encode(first["spec"])


@pytest.mark.parametrize(
    "given",
    [
        obj(spec={"small": 1}),
        obj(spec={"large": "x" * MOST}),
        obj(spec=["x" * 2000]),
        obj(**{'a"b': SPEC}),
        obj(),
    ],
    ids=lambda given: str([*given]),
)
def test_other_values_are_not_noted(given: dict[str, Any]) -> None:
    text = encode_custom(given)
    stored_contents.note(given)
    assert stored_contents.with_texts(given) is given
    assert encode_custom(given) == text
