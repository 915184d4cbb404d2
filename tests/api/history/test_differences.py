"""Differences of objects: applied they make the second of the first, and they read well."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.history.differences import changed_fields, differences, is_within, same, summary
from kubechronicle.api.patch import json_patch

SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-1, 1) | st.sampled_from(["", "a", "b", "x/y~z"])
NAMED = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcd")}, optional={"image": SCALARS}),
    max_size=4,
    unique_by=lambda item: item["name"],
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "a/b", "m~n", "name"]), inner, max_size=4)
        | NAMED
    ),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.sampled_from(["spec", "data", "a.b/c"]), VALUES, max_size=3)


@given(OBJECTS, OBJECTS)
def test_applied_they_make_the_second_of_the_first(before: dict[str, Any], after: dict[str, Any]) -> None:
    operations = [one.operation() for one in differences(before, after)]
    made = json_patch.apply(copy.deepcopy(before), [{k: v for k, v in one.items() if k != "old"} for one in operations])
    assert same(made, after)
    assert not differences(after, after)


DEPLOYMENT: dict[str, Any] = {
    "metadata": {"generation": 1, "labels": {"app": "web"}, "managedFields": [{"manager": "a"}]},
    "spec": {
        "replicas": 3,
        "template": {
            "spec": {"containers": [{"name": "web", "image": "nginx:1", "args": ["a", "b"]}, {"name": "log"}]}
        },
    },
}


def changed(**changes: Any) -> dict[str, Any]:
    new = copy.deepcopy(DEPLOYMENT)
    for path, value in changes.items():
        at: Any = new
        *parents, last = path.split("__")
        for part in parents:
            at = at[int(part) if part.isdigit() else part]
        at[int(last) if last.isdigit() else last] = value
    return new


@pytest.mark.parametrize(
    ("changes", "fields", "line"),
    [
        ({"spec__replicas": 5, "metadata__generation": 2}, ["spec.replicas"], "spec.replicas: 3 → 5"),
        (
            {"spec__template__spec__containers__0__image": "nginx:2"},
            ["spec.template.spec.containers[name=web].image"],
            "spec.template.spec.containers[name=web].image: nginx:1 → nginx:2",
        ),
        ({"metadata__managedFields": []}, [], ""),
        ({"metadata__labels": {"app": "web", "a.b/c": "d"}}, ["metadata.labels[a.b/c]"], "+metadata.labels[a.b/c]: d"),
        (
            {"spec__template__spec__containers": [{"name": "log"}]},
            ["spec.template.spec.containers[name=web]"],
            "-spec.template.spec.containers[name=web]",
        ),
        (
            {"spec__template__spec__containers__0__args": ["a", "c", "b"]},
            ["spec.template.spec.containers[name=web].args[1]"],
            "+spec.template.spec.containers[name=web].args[1]: c",
        ),
        ({"spec__replicas": True}, ["spec.replicas"], "spec.replicas: 3 → true"),
    ],
)
def test_they_read_well(changes: dict[str, Any], fields: list[str], line: str) -> None:
    found = differences(DEPLOYMENT, changed(**changes))
    assert changed_fields(found) == fields
    assert summary(found) == line


def test_a_long_summary_says_how_much_more_there_is() -> None:
    found = differences({}, {f"field{number}": "x" * 100 for number in range(10)})
    line = summary(found)
    assert line.endswith("and 7 more")
    assert len(line) < 200


@pytest.mark.parametrize(
    ("field", "asked", "expected"),
    [
        ("spec.replicas", "spec.replicas", True),
        ("spec.replicas", "spec", True),
        ("spec", "spec.replicas", True),
        ("spec.replicas", ".spec.replicas", True),
        ("spec.replicasX", "spec.replicas", False),
        ("spec.containers[name=web].image", "spec.containers.image", True),
        ("spec.containers[name=web].image", "spec.containers[name=web]", True),
        ("spec.containers[name=web].image", "spec.containers[name=log]", False),
        ("metadata.labels[a.b/c]", "metadata.labels", True),
    ],
)
def test_a_field_is_within_what_is_asked(field: str, asked: str, expected: bool) -> None:
    assert is_within(field, asked) is expected
