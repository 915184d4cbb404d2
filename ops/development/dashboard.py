"""``python -m kubechronicle.ops.development.dashboard``: write ops/monitoring/dashboard.json, for Grafana 10 or newer.

The panels are a table. Each has a title, a unit, and queries with the legend of their lines. ``$job`` selects servers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).resolve().parents[1] / "monitoring" / "dashboard.json"

Panel = tuple[str, str, tuple[tuple[str, str], ...]]

_J: Final = 'job=~"$job"'
ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    ("Requests", (
        ("Requests by verb", "reqps", ((f"sum by (verb) (rate(apiserver_request_total{{{_J}}}[5m]))", "{{verb}}"),)),
        ("Errors by code", "reqps",
         ((f'sum by (code) (rate(apiserver_request_total{{{_J},code=~"5..|429"}}[5m]))', "{{code}}"),)),
        ("Latency of reads, p99", "s",
         ((f'histogram_quantile(0.99, sum by (le, verb) (rate(apiserver_request_sli_duration_seconds_bucket{{{_J},'
           'verb=~"GET|LIST"}[5m])))', "{{verb}}"),)),
        ("Latency of writes, p99", "s",
         ((f'histogram_quantile(0.99, sum by (le, verb) (rate(apiserver_request_sli_duration_seconds_bucket{{{_J},'
           'verb=~"POST|PUT|PATCH|DELETE"}[5m])))', "{{verb}}"),)),
        ("Requests in flight", "short",
         ((f"sum by (request_kind) (apiserver_current_inflight_requests{{{_J}}})", "{{request_kind}}"),)),
        ("Watchers", "short", ((f"sum by (kind) (apiserver_registered_watchers{{{_J}}})", "{{kind}}"),)),
    )),
    ("Log", (
        ("Applied revision", "short",
         ((f"kubechronicle_applied_revision{{{_J}}} % 1e14", "{{instance}} {{database}}"),)),
        ("Lag of replicas", "short",
         ((f"-(kubechronicle_applied_revision{{{_J}}} - on (database) group_left max by (database) "
           f"(kubechronicle_applied_revision{{{_J}}}))",
           "{{instance}} {{database}}"),)),
        ("Commits", "ops",
         ((f'sum(rate(etcd_requests_total{{{_J},operation=~"create|update|delete|batch"}}[5m]))', "commits"),)),
        ("Round trips, p99", "s",
         ((f"histogram_quantile(0.99, sum by (le, operation) "
           f"(rate(etcd_request_duration_seconds_bucket{{{_J}}}[5m])))",
           "{{operation}}"),)),
        ("Failed round trips", "ops",
         ((f"sum by (operation) (rate(etcd_request_errors_total{{{_J}}}[5m]))", "{{operation}}"),)),
        ("Stored objects", "short",
         ((f"topk(10, max by (resource) (apiserver_storage_objects{{{_J}}}))", "{{resource}}"),)),
    )),
    ("Fairness", (
        ("Waiting requests", "short",
         ((f"sum by (priority_level) (apiserver_flowcontrol_current_inqueue_requests{{{_J}}})",
           "{{priority_level}}"),)),
        ("Rejected requests", "reqps",
         ((f"sum by (priority_level, reason) (rate(apiserver_flowcontrol_rejected_requests_total{{{_J}}}[5m]))",
           "{{priority_level}} {{reason}}"),)),
        ("Wait, p99", "s",
         ((f"histogram_quantile(0.99, sum by (le, priority_level) "
           f"(rate(apiserver_flowcontrol_request_wait_duration_seconds_bucket{{{_J}}}[5m])))",
           "{{priority_level}}"),)),
        ("Seats", "short",
         ((f"sum by (priority_level) (apiserver_flowcontrol_current_executing_seats{{{_J}}})",
           "{{priority_level}}"),)),
    )),
    ("Process", (
        ("CPU", "percentunit", ((f"rate(process_cpu_seconds_total{{{_J}}}[5m])", "{{instance}} {{worker}}"),)),
        ("Memory", "bytes", ((f"process_resident_memory_bytes{{{_J}}}", "{{instance}} {{worker}}"),)),
        ("Open files", "short", ((f"process_open_fds{{{_J}}}", "{{instance}} {{worker}}"),)),
        ("Work queues", "short", ((f"sum by (name) (workqueue_depth{{{_J}}})", "{{name}}"),)),
        ("Restarts of parts", "short", ((f"increase(kubechronicle_restarts_total{{{_J}}}[1h])", "{{instance}}"),)),
        ("Slow clients cut off", "short",
         ((f"increase(kubechronicle_slow_clients_cut_off_total{{{_J}}}[1h])", "{{instance}}"),)),
    )),
)  # fmt: skip

WIDTH: Final = 8
HEIGHT: Final = 7
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """Return the dashboard, in the model of Grafana's HTTP API."""
    return {
        "title": "kubechronicle",
        "uid": "kubechronicle",
        "tags": ["kubernetes", "kubechronicle"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_data_source(), _job()]},
        "panels": list(_panels()),
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _job() -> dict[str, Any]:
    query = "label_values(kubechronicle_applied_revision, job)"
    return {
        "name": "job", "label": "Job", "type": "query", "datasource": _SOURCE, "query": query, "refresh": 1,
        "includeAll": True, "multi": True, "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def _panels() -> Iterable[dict[str, Any]]:
    top = number = 0
    for row, panels in ROWS:
        number += 1
        yield {
            "id": number, "type": "row", "title": row, "collapsed": False, "panels": [],
            "gridPos": {"h": 1, "w": 24, "x": 0, "y": top},
        }  # fmt: skip
        top += 1
        for index, (title, unit, queries) in enumerate(panels):
            number += 1
            across, down = index % (24 // WIDTH), index // (24 // WIDTH)
            yield {
                "id": number, "type": "timeseries", "title": title, "datasource": _SOURCE,
                "gridPos": {"h": HEIGHT, "w": WIDTH, "x": across * WIDTH, "y": top + down * HEIGHT},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend, "datasource": _SOURCE}
                    for place, (expression, legend) in enumerate(queries)
                ],
            }  # fmt: skip
        top += HEIGHT * -(-len(panels) // (24 // WIDTH))


def main() -> None:
    FILE.write_text(json.dumps(dashboard(), indent=1) + "\n")


if __name__ == "__main__":
    main()
