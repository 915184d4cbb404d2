"""The stored forms of objects, and their sealing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.codecs import unstructured
from kubechronicle.api.codecs.json import WrittenNumber
from kubechronicle.api.meta.encoding import METADATA_ORDER, copy_object, encode_custom, encode_stored, is_sortable
from kubechronicle.eventlog.encryption.contents import decode, encode
from kubechronicle.eventlog.encryption.providers import Value
from kubechronicle.eventlog.entries import seal

UID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def custom(metadata: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    meta = {"name": "a", "uid": UID, "creationTimestamp": "2026-01-01T00:00:00Z", **(metadata or {})}
    return {"kind": "Widget", "apiVersion": "example.com/v1", **members, "metadata": meta}


def test_a_custom_object_is_stored_and_sealed_with_sorted_keys() -> None:
    obj = custom({"labels": {"b": "<", "a": "1"}}, spec={"z": 1, "a": [{"y": 1, "x": 2}]})
    body = encode_custom({**obj, "metadata": {**obj["metadata"], "resourceVersion": "3"}})
    assert body == (
        rb'{ "apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z",'
        rb'"labels":{"a":"1","b":"\u003c"},"name":"a", "uid":"%b"},"spec":{"a":[{"x":2,"y":1}],"z":1}}' % UID.encode()
    )
    assert seal(body, 7) == unstructured.encode({**obj, "metadata": {**obj["metadata"], "resourceVersion": "7"}})


@pytest.mark.parametrize("name", ["Spec", "data", "apiversion", "meta"])
def test_an_object_with_a_field_before_metadata_begins_as_all_others(name: str) -> None:
    """Encryption leaves what stands before metadata as it is, and sealing looks for the first metadata."""
    obj = custom(**{name: {"metadata": {"uid": UID}}})
    body = encode_custom(obj)
    assert not is_sortable(obj)
    assert body == encode_stored(obj)
    assert json.loads(seal(body, 7)) == {**obj, "metadata": {**obj["metadata"], "resourceVersion": "7"}}


def test_an_encrypted_custom_object_shows_its_version_and_kind_alone() -> None:
    body = encode_custom(custom(spec={"password": "secret"}))
    stored = encode(body, Value(b"k8s:enc:", b"data"))
    assert json.loads(stored).keys() == {"encrypted", "apiVersion", "kind", "data"}
    assert decode(stored) == b"k8s:enc:data"


TEXT = st.text(st.sampled_from(' "uid":,{}\\ab\n<é'), max_size=12)
VALUES = st.recursive(TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))


@given(st.dictionaries(TEXT, TEXT, max_size=4), VALUES)
def test_no_text_passes_for_the_place_of_the_revision(annotations: dict[str, str], spec: Any) -> None:
    obj = custom({"annotations": {**annotations, "uid": UID}}, spec=spec, zeta={"uid": UID})
    sealed = seal(encode_custom(obj), 7)
    assert sealed == unstructured.encode({**obj, "metadata": {**obj["metadata"], "resourceVersion": "7"}})


FIELDS = st.permutations((*METADATA_ORDER, "selfLink", "resourceVersion", "other"))


@given(FIELDS, st.integers(0, 16), st.permutations(("apiVersion", "kind", "metadata", "data", "a")))
def test_the_fields_of_metadata_are_stored_in_the_order_of_kubernetes(
    fields: list[str], count: int, members: list[str]
) -> None:
    meta = dict.fromkeys(fields[:count], 1)
    obj = {**dict.fromkeys(members, "x"), "metadata": meta}
    stored = json.loads(encode_stored(obj))
    assert list(stored) == ["apiVersion", "kind", "metadata", *[name for name in members if name in ("data", "a")]]
    known = [name for name in METADATA_ORDER if name in meta]
    others = [name for name in meta if name not in METADATA_ORDER and name != "resourceVersion"]
    assert list(stored["metadata"]) == [*known, *others]
    assert list(obj) == members
    assert list(meta) == fields[:count]


@pytest.mark.parametrize("leaf", ["é", "\ud800", WrittenNumber("1e3"), 2**70, 0.5, float("inf"), True, None])
def test_a_copy_shares_no_containers(leaf: Any) -> None:
    value = {"a": {"b": [leaf, {"c": leaf}, []]}, "d": {}}
    copied = copy_object(value)
    assert copied == value
    assert repr(copied) == repr(value)
    copied["a"]["b"][1]["c"] = "changed"
    copied["a"]["b"][2].append(1)
    copied["d"]["e"] = 1
    assert value == {"a": {"b": [leaf, {"c": leaf}, []]}, "d": {}}
