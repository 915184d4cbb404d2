"""A running cluster as the source of an import: its resources, pages, and forgotten revisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubechronicle.ops.client.client import ApiError
from kubechronicle.ops.migration.cluster_command import ClusterSource, ListedObjects, SourceCompacted
from kubechronicle.ops.migration.report import MigrationReport

DISCOVERY: dict[str, Any] = {
    "/api/v1": {
        "resources": [
            {"name": "pods", "kind": "Pod", "verbs": ["get", "list"]},
            {"name": "pods/status", "kind": "Pod", "verbs": ["get"]},
            {"name": "bindings", "kind": "Binding", "verbs": ["create"]},
            {"name": "events", "kind": "Event", "verbs": ["get", "list"]},
        ]
    },
    "/apis": {
        "groups": [
            {"preferredVersion": {"groupVersion": gv}, "versions": [{"groupVersion": each} for each in versions]}
            for gv, *versions in (
                ("events.k8s.io/v1", "events.k8s.io/v1"),
                ("autoscaling/v1", "autoscaling/v2", "autoscaling/v1"),
                ("metrics.k8s.io/v1", "metrics.k8s.io/v1"),
                ("shop.example.com/v1", "shop.example.com/v1"),
                ("down.example.com/v1", "down.example.com/v1"),
            )
        ]
    },
    "/apis/events.k8s.io/v1": {"resources": [{"name": "events", "kind": "Event", "verbs": ["get", "list"]}]},
    "/apis/autoscaling/v1": {
        "resources": [{"name": "horizontalpodautoscalers", "kind": "HorizontalPodAutoscaler", "verbs": ["get", "list"]}]
    },
    "/apis/autoscaling/v2": {
        "resources": [{"name": "horizontalpodautoscalers", "kind": "HorizontalPodAutoscaler", "verbs": ["get", "list"]}]
    },
    "/apis/metrics.k8s.io/v1": {"resources": [{"name": "pods", "kind": "PodMetrics", "verbs": ["get", "list"]}]},
    "/apis/shop.example.com/v1": {"resources": [{"name": "gears", "kind": "Gear", "verbs": ["get", "list"]}]},
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinitionList",
        "items": [
            {
                "metadata": {"name": "gears.shop.example.com"},
                "spec": {
                    "group": "shop.example.com",
                    "scope": "Namespaced",
                    "names": {"plural": "gears", "kind": "Gear"},
                },
            }
        ],
    },
}


class Answers:
    """A client with prepared answers. ``asked``: the queries so far."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        self.asked.append((path, dict(query or {})))
        if path not in DISCOVERY:
            raise ApiError(503, "ServiceUnavailable", "down")
        return DISCOVERY[path]


def source(client: Any) -> ClusterSource:
    return ClusterSource(client, "https://former")


def test_each_resource_is_read_once_in_the_stored_version() -> None:
    report = MigrationReport()
    assert source(Answers()).survey(report) == [
        ListedObjects("pods", "/api/v1/pods"),
        ListedObjects("events", "/api/v1/events"),
        ListedObjects("horizontalpodautoscalers.autoscaling", "/apis/autoscaling/v2/horizontalpodautoscalers"),
        ListedObjects("gears.shop.example.com", "/apis/shop.example.com/v1/gears"),
    ]
    assert report.notes == ["left out: pods of metrics.k8s.io/v1, which no definition describes"]
    assert list(report.problems) == ["group down.example.com/v1"]


class Pages:
    """A client with a list of two pages."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, str]] = []

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        assert query is not None
        self.asked.append(query)
        if query.get("resourceVersion") == "1":
            raise ApiError(410, "Expired", "too old")
        last = "continue" in query
        item = {"metadata": {"name": "b" if last else "a"}}
        return {"apiVersion": "v1", "kind": "PodList", "metadata": {} if last else {"continue": "t"}, "items": [item]}


def test_a_list_is_read_page_by_page_as_of_one_revision() -> None:
    client = Pages()
    pages = list(source(client).pages(ListedObjects("pods", "/api/v1/pods"), 7))
    assert pages == [[{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}] for name in "ab"]
    assert client.asked == [
        {"limit": "500", "resourceVersion": "7", "resourceVersionMatch": "Exact"},
        {"limit": "500", "continue": "t"},
    ]


def test_a_forgotten_revision_is_told_apart() -> None:
    with pytest.raises(SourceCompacted):
        list(source(Pages()).pages(ListedObjects("pods", "/api/v1/pods"), 1))
