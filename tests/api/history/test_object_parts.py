"""Parts of objects: the fields that are asked for, as they are, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.history.object_parts import MOST_FIELDS, parts_of

NAMES = st.sampled_from(("a", "b", "metadata", "kind", "with-dash", "ünï"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(NAMES, below, max_size=3),
    max_leaves=12,
)
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map(".".join), min_size=1, max_size=4)
ABSENT = object()


def value_at(obj: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(obj, dict) or name not in obj:
            return ABSENT
        obj = obj[name]
    return obj


@given(st.dictionaries(NAMES, VALUES, max_size=4), PATHS)
def test_the_fields_are_as_in_the_object(obj: dict[str, Any], paths: list[str]) -> None:
    found = json.loads(msgspec.json.encode(parts_of(paths)(json.dumps(obj).encode())))
    for path in (*paths, "kind"):
        names = path.split(".")
        for end in range(1, len(names) + 1):
            # A mapping above a field may be a part of itself, but it is there, and what stands in its place is.
            theirs, mine = (value_at(each, ".".join(names[:end])) for each in (obj, found))
            if end == len(names) or not isinstance(theirs, dict):
                assert mine == theirs or (mine is ABSENT and theirs is ABSENT)
            else:
                assert isinstance(mine, dict)


def parts(obj: Any, *fields: str, version: str = "") -> Any:
    return json.loads(msgspec.json.encode(parts_of(fields, version)(orjson.dumps(obj))))


def test_other_fields_are_left_out() -> None:
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"a.b/c": "d"}, "managedFields": []},
        "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "x", "image": "y"}]}}},
    }
    kind = {"apiVersion": "apps/v1", "kind": "Deployment"}
    assert parts(web, "spec.replicas") == {**kind, "spec": {"replicas": 3}}
    assert parts(web, "metadata.labels.a.b/c") == {**kind, "metadata": {"labels": {"a.b/c": "d"}}}
    containers = {"spec": {"template": {"spec": {"containers": [{"name": "x", "image": "y"}]}}}}
    assert parts(web, "spec.template.spec.containers[name=x].image") == {**kind, **containers}
    assert parts(web, "spec.replicas", "spec") == {**kind, "spec": web["spec"]}
    assert parts(web, "status.phase") == kind


def test_an_object_with_another_shape_or_version_is_whole() -> None:
    assert parts({"spec": "text", "status": 1}, "spec.replicas") == {"spec": "text", "status": 1}
    web = {"apiVersion": "apps/v1", "spec": {"replicas": 3, "paused": True}}
    assert parts(web, "spec.replicas", version="apps/v1beta1") == web
    assert parts(web, "spec.replicas", version="apps/v1") == {"apiVersion": "apps/v1", "spec": {"replicas": 3}}


def test_numbers_keep_their_digits() -> None:
    assert msgspec.json.encode(parts_of(["a"])(b'{"a":1.50,"b":2}')) == b'{"a":1.50}'


@pytest.mark.parametrize("field", ["", "a..b", "[x]", "a[b"])
def test_a_field_must_be_a_path(field: str) -> None:
    with pytest.raises(ValueError, match="is no path of a field"):
        parts_of([field])


def test_the_number_of_fields_is_limited() -> None:
    parts_of([f"a.b{number}" for number in range(MOST_FIELDS - 3)])
    with pytest.raises(ValueError, match="more than 64 fields"):
        parts_of([f"a.b{number}" for number in range(MOST_FIELDS)])
