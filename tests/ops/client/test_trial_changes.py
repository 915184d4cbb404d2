"""Changes of several lists, in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kubechronicle.api.admission.logged_changes import LoggedChange, Name, Reference
from kubechronicle.api.admission.policy_sources import Policy
from kubechronicle.api.admission.replayed_webhooks import WebhookReplay
from kubechronicle.api.admission.replays import PolicyReplay
from kubechronicle.api.admission.validating_policies import Validator
from kubechronicle.api.history.positions import SPAN
from kubechronicle.api.registry.registry import known_registry
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.trial import Trial
from kubechronicle.ops.client.trial_changes import Bounds, Source, changes, merged, sources_of
from kubechronicle.ops.errors import OperatorError

BOUNDS = Bounds(0, 10_000)


def change(revision: int) -> LoggedChange:
    return LoggedChange(Name(str(revision)), "Update", "", Reference("pods", f"pod-{revision}"))


class Lists:
    """A client of lists. ``pages``: by resource, each page with its revisions."""

    def __init__(self, pages: Mapping[str, Sequence[Sequence[int]]]) -> None:
        self._pages = pages

    def decoded_pages(
        self, decode: object, path: str, query: Mapping[str, str], *, size: int
    ) -> Iterator[Sequence[LoggedChange]]:
        resource = query["fieldSelector"].rpartition("object.resource=")[2]
        for page in self._pages[resource]:
            yield [change(revision) for revision in page]


def read(pages: Mapping[str, Sequence[Sequence[int]]]) -> list[tuple[str, int]]:
    client, sources = cast(Client, Lists(pages)), [Source(resource, True) for resource in pages]
    runs = changes(client, sources, BOUNDS, old_read=False, user_read=False)
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


@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=40))
def test_changes_of_another_database_have_their_place_in_time(made: list[tuple[int, bool]]) -> None:
    """Leases have revisions that are larger than all others; the times order them, whole seconds without a fraction."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    pods, leases = list[LoggedChange](), list[LoggedChange]()
    for tenths, elsewhere in made:
        at += timedelta(milliseconds=100 * tenths)
        time = at.isoformat().replace("+00:00", "Z")
        number, to = (SPAN + len(leases) + 1, leases) if elsewhere else (len(pods) + 1, pods)
        to.append(structs.replace(change(number), time=time))
    pages = {"pods": [pods], "leases.coordination.k8s.io": [leases]}

    class Listed:
        def decoded_pages(
            self, decode: object, path: str, query: Mapping[str, str], *, size: int
        ) -> Iterator[Sequence[LoggedChange]]:
            yield from pages[query["fieldSelector"].rpartition("object.resource=")[2]]

    sources = [Source(resource, True) for resource in pages]
    runs = changes(cast(Client, Listed()), sources, BOUNDS, old_read=False, user_read=False)
    found = [each for _, run in runs for each in run]
    times = [datetime.fromisoformat(each.time) for each in found]
    assert times == sorted(times)
    assert len(found) == len(made)


def test_an_error_of_a_list_ends_the_changes() -> None:
    class Failing:
        def decoded_pages(self, *_: Any, **__: Any) -> Iterator[Sequence[LoggedChange]]:
            yield [change(1)]
            raise OperatorError("the connection broke")

    runs = changes(cast(Client, Failing()), [Source("pods", True)], BOUNDS, old_read=False, user_read=False)
    assert [each.revision for each in next(runs)[1]] == [1]
    with pytest.raises(OperatorError, match="broke"):
        next(runs)


class Asked:
    """A client that keeps the queries of lists, all of them empty."""

    def __init__(self) -> None:
        self.queries: list[Mapping[str, str]] = []

    def decoded_pages(
        self, decode: object, path: str, query: Mapping[str, str], *, size: int
    ) -> Iterator[Sequence[LoggedChange]]:
        self.queries.append(query)
        return iter(())


def asked(source: Source, *, user_read: bool = True) -> Mapping[str, str]:
    client = Asked()
    assert list(changes(cast(Client, client), [source], BOUNDS, old_read=False, user_read=user_read)) == []
    [query] = client.queries
    return query


def test_only_the_wanted_parts_of_changes_are_asked_for() -> None:
    whole = asked(Source("pods", True))
    assert whole == {
        "order": "oldest",
        "fieldSelector": "revision.from=1,revision.to=10000,object.resource=pods",
        "content": "after",
    }
    source = Source("pods", True, deletions=False, fields=("metadata.labels", "spec.x"), version="v1")
    assert asked(source, user_read=False) == {
        "order": "oldest",
        "fieldSelector": f"{whole['fieldSelector']},request.verb!=delete,request.verb!=deletecollection",
        "content": "after",
        "fields": "metadata.labels,spec.x,metadata.deletionTimestamp,metadata.finalizers",
        "fieldsOf": "v1",
        "details": "none",
    }


def test_the_state_is_read_from_whole_lists() -> None:
    part, whole = Source("pods", True, fields=("spec.x",)), Source("pods", True)
    for each in (part, Source("pods", True, deletions=False), Source("pods", True, "Create")):
        assert merged([each], [whole]) == [whole]
    assert merged([whole], [whole]) == [whole]
    nodes = Source("nodes", False)
    assert merged([part], [nodes]) == [part, nodes]


def sources(
    *operations: str, resource: str = "pods", expression: str = "object.spec.x == 1", **rule: Any
) -> list[Source]:
    rules = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": [resource], **rule}]
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": expression}]}
    policy = Policy({"metadata": {"name": "p"}, "spec": spec}, Validator)
    registry = known_registry()
    trial = Trial(
        client=cast(Client, None),
        registry=registry,
        replay=PolicyReplay([policy], (), registry),
        mutating=WebhookReplay([], registry, cast(Any, None)),
        validating=WebhookReplay([], registry, cast(Any, None)),
        sources=[],
        context=[],
        fixed=[],
        bounds=BOUNDS,
        namespace="",
        old_read=False,
        user_read=False,
        notes=[],
    )
    return sources_of(trial.concerns_kind, trial.fields_read, registry, "")


def test_policies_tell_the_parts_that_they_need() -> None:
    assert sources("CREATE", "UPDATE") == [Source("pods", True, deletions=False, fields=("spec.x",), version="v1")]
    assert sources("CREATE") == [Source("pods", True, "Create", deletions=False, fields=("spec.x",), version="v1")]
    assert sources("DELETE")[0].deletions
    assert sources("*", expression="request.name == 'x'")[0].fields == ("apiVersion", "kind")
    assert sources("*", expression="object != null")[0].fields == ()
    many = " && ".join(f"object.spec.f{number} == 1" for number in range(70))
    assert sources("*", expression=many)[0].fields == (), "more fields than the server takes"


def test_objects_that_policies_see_in_another_form_are_read_as_a_whole() -> None:
    assert sources("*", resource="deployments/scale")[0].fields == ()
    assert sources("*", resource="deployments")[0].fields == ("spec.x",)
    [scalers] = sources("*", resource="horizontalpodautoscalers")
    assert scalers.fields == (), "several versions are served"
    assert sources("*", resourceNames=["a"])[0].fields == ()
