"""The measure of walks through the code (ops/development/walks.py)."""

from __future__ import annotations

import subprocess
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
    assert walk.order[0] == QUERY
    assert walk.shared_with(Walk((QUERY,), frozenset())) == Walk((QUERY,), frozenset())


def test_files_that_name_a_field() -> None:
    found = walks.files_of_field("podReplacementPolicy")
    assert found
    assert all(file.startswith("api/builtin/batch/") for file in found)


def test_the_diagram_is_a_trace() -> None:
    """ARCHITECTURE.md shows the functions of a write as a real server calls them."""
    page = (walks.ROOT / "ARCHITECTURE.md").read_text()
    diagram = page[page.index("```text\ncreate,") :].removeprefix("```text\n").partition("\n```")[0]
    command = [sys.executable, "-m", walks.__name__, "--order"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=walks.ROOT)
    for part in diagram.split("\n\n"):
        name, *lines = part.splitlines()
        places = [line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith(f"{name}: ")]
        shown = [" ".join(line.split()[-2:]) for line in lines]
        assert [place for place in places if place in shown] == shown
