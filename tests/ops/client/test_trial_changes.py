"""Changes of several lists, in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.admission.logged_changes import LoggedChange, Name, Reference
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.trials.changes import Bounds, Source, changes
from kubechronicle.ops.errors import OperatorError

BOUNDS = Bounds(0, 10_000)


def change(revision: int) -> LoggedChange:
    return LoggedChange(Name(str(revision)), "Update", "", Reference("pods", f"pod-{revision}"))


class Lists:
    """A client of lists. ``pages``: by resource, each page with its revisions."""

    def __init__(self, pages: Mapping[str, Sequence[Sequence[int]]]) -> None:
        self._pages = pages

    def changes(self, path: str, query: Mapping[str, str], *, size: int) -> Iterator[Sequence[LoggedChange]]:
        resource = query["fieldSelector"].rpartition("object.resource=")[2]
        for page in self._pages[resource]:
            yield [change(revision) for revision in page]


def read(pages: Mapping[str, Sequence[Sequence[int]]]) -> list[tuple[str, int]]:
    client, sources = cast(Client, Lists(pages)), [Source(resource, True) for resource in pages]
    runs = changes(client, sources, BOUNDS, old_read=False)
    return [(resource, each.revision) for resource, run in runs for each in run]


@st.composite
def paged_lists(draw: st.DrawFn) -> dict[str, list[list[int]]]:
    found = {}
    for resource in ("pods", "nodes", "services")[: draw(st.integers(1, 3))]:
        revisions = sorted(draw(st.sets(st.integers(1, 40))))
        cuts = sorted(draw(st.lists(st.integers(0, len(revisions)), max_size=4)))
        edges = [0, *cuts, len(revisions)]
        found[resource] = [revisions[first:last] for first, last in pairwise(edges)]
    return found


@given(paged_lists())
def test_changes_come_once_in_the_order_of_the_log(pages: dict[str, list[list[int]]]) -> None:
    """Lists may overlap, and pages may be empty."""
    owners: dict[int, set[str]] = {}
    for resource, lists in pages.items():
        for revision in (each for page in lists for each in page):
            owners.setdefault(revision, set()).add(resource)
    found = read(pages)
    assert [revision for _, revision in found] == sorted(owners)
    assert all(resource in owners[revision] for resource, revision in found)


def test_an_error_of_a_list_ends_the_changes() -> None:
    class Failing:
        def changes(self, *_: Any, **__: Any) -> Iterator[Sequence[LoggedChange]]:
            yield [change(1)]
            raise OperatorError("the connection broke")

    runs = changes(cast(Client, Failing()), [Source("pods", True)], BOUNDS, old_read=False)
    assert [each.revision for each in next(runs)[1]] == [1]
    with pytest.raises(OperatorError, match="broke"):
        next(runs)
