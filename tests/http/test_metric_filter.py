"""Metrics and label values that /metrics leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import Counter, Histogram

from kubechronicle.http.metrics import MetricFilter, Metrics
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.server.collectors.server_metrics import shown_metrics
from kubechronicle.ops.settings import settings


def exposed(shown: MetricFilter) -> list[str]:
    metrics = Metrics(shown)
    counter = Counter("asks_total", "Asks.", ("verb", "code"), registry=metrics.registry)
    for verb in ("GET", "PUT", "BREW"):
        counter.labels(verb, "200").inc(2)
    Histogram("took_seconds", "Time.", ("verb",), buckets=(1,), registry=metrics.registry).labels("BREW").observe(3)
    lines = metrics.exposition().decode().splitlines()
    return [line for line in lines if line.startswith(("asks_total", "took_seconds")) and "_created" not in line]


def test_disabled_metrics() -> None:
    assert len(exposed(MetricFilter())) == 7
    assert exposed(MetricFilter(disabled=frozenset({"asks_total", "took_seconds"}))) == []


def test_allowed_values_of_a_label() -> None:
    allowed = {("asks_total", "verb"): frozenset({"GET"}), ("took_seconds", "verb"): frozenset({"GET"})}
    assert exposed(MetricFilter(allowed=allowed)) == [
        'asks_total{code="200",verb="GET"} 2',
        'asks_total{code="200",verb="unexpected"} 4',
        'took_seconds_bucket{le="1.0",verb="unexpected"} 0',
        'took_seconds_bucket{le="+Inf",verb="unexpected"} 1',
        'took_seconds_count{verb="unexpected"} 1',
        'took_seconds_sum{verb="unexpected"} 3',
    ]


def test_settings(tmp_path: Path) -> None:
    manifest = tmp_path / "labels.yaml"
    manifest.write_text('allowListMapping: {"asks_total,verb": "GET,PUT"}')
    flag = {"allow-metric-labels-manifest": str(manifest)}
    expected = {("asks_total", "verb"): frozenset({"GET", "PUT"})}
    assert shown_metrics(settings.load(flag, environment={})).allowed == expected
    for given in ("a,b=c", ["a,b=c"], '"a,b=c"'):
        loaded = settings.load({**flag, "allow-metric-labels": given}, environment={})
        assert shown_metrics(loaded).allowed == {("a", "b"): frozenset({"c"})}
    two = settings.load({"allow-metric-labels": '"a,b=c,d","e,f=g"', "disabled-metrics": "x,y"}, environment={})
    assert shown_metrics(two).allowed == {("a", "b"): frozenset({"c", "d"}), ("e", "f"): frozenset({"g"})}
    assert shown_metrics(two).disabled == {"x", "y"}
    manifest.write_text("{}")
    with pytest.raises(OperatorError, match=r"--allow-metric-labels-manifest: .*it has no mapping allowListMapping"):
        shown_metrics(settings.load(flag, environment={}))
    with pytest.raises(OperatorError, match="--allow-metric-labels: must be METRIC,LABEL=VALUES"):
        settings.load({"allow-metric-labels": "a=b"}, environment={})
