"""The measure of walks through the code (ops/development/walks.py)."""

from __future__ import annotations

import sys

import pytest

from kubechronicle.api.meta.request_info import Query, resolve
from kubechronicle.ops.development import walks
from kubechronicle.ops.development.walks import Function, Tracer, Walk

QUERY = Function("api/meta/request_info.py", "Query.__init__")


@pytest.mark.parametrize(
    ("caller", "called", "climbs"),
    [
        ("http/filters.py", "actors/store.py", False),
        ("actors/store.py", "http/filters.py", True),
        ("eventlog/tail.py", "api/meta/encoding.py", False),
        ("api/meta/encoding.py", "eventlog/tail.py", False),
        ("actors/admission/chain.py", "actors/writing/writes.py", True),
        ("actors/writing/writes.py", "actors/admission/chain.py", False),
        ("actors/store.py", "actors/writing/writes.py", False),
    ],
)
def test_a_call_into_a_higher_layer_climbs(caller: str, called: str, climbs: bool) -> None:
    assert walks.climbs(caller, called) is climbs


def test_a_walk_has_the_functions_of_this_project() -> None:
    tracer = Tracer()
    before = sys.getprofile()
    tracer.install()
    try:
        tracer.begin()
        resolve("GET", "/api/v1/pods", Query("limit=1"))
        walk = tracer.end()
        Query("")  # not noted any more
    finally:
        sys.setprofile(before)
    assert QUERY in walk.functions
    assert all(file.startswith("api/") for file in walk.files)
    assert walk.shared_with(Walk(frozenset({QUERY}), frozenset())) == Walk(frozenset({QUERY}), frozenset())


def test_files_that_name_a_field() -> None:
    found = walks.files_of_field("podReplacementPolicy")
    assert found
    assert all(file.startswith("api/builtin/batch/") for file in found)
