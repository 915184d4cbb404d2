"""The shipped alerts and dashboard: Prometheus' own loader and parser accept them, and the server has their metrics."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from harness import BINARIES
from in_process import MAPS, configmap, open_server
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from kubechronicle.ops.development import dashboard

MONITORING = Path(dashboard.FILE).parent
ALERTS = MONITORING / "alerts.yaml"
# Metrics of servers with further settings, or of Prometheus itself.
ELSEWHERE = {
    "up",
    "apiserver_audit_error_total",
    "apiserver_client_certificate_expiration_seconds_bucket",
    "apiserver_flowcontrol_rejected_requests_total",
    "apiserver_flowcontrol_request_wait_duration_seconds_bucket",
    "etcd_request_errors_total",
    "kubechronicle_slow_clients_cut_off_total",
    "kubechronicle_witness_token_age_seconds",
    "workqueue_depth",
}


@pytest.fixture(scope="module")
def wanted() -> set[str]:
    """Return the metrics that alerts and dashboard select, which the checker prints."""
    checked = subprocess.run(
        [BINARIES / "rules", ALERTS, dashboard.FILE], capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0, checked.stderr
    return set(checked.stdout.split())


async def test_the_metrics_of_alerts_and_dashboard_exist(autojump_clock: MockClock, wanted: set[str]) -> None:
    async with open_server(loops=True) as server:
        await server.post(MAPS, configmap("a"))
        async with server.watch(f"{MAPS}?watch=1") as watch:
            await watch.event()
            text = (await server.ask("GET", "/metrics")).body.decode()
    served = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert wanted - served - named <= ELSEWHERE
    assert wanted >= ELSEWHERE


def test_the_dashboard_is_the_written_one() -> None:
    assert json.loads(dashboard.FILE.read_text()) == dashboard.dashboard()
    panels = [panel for panel in dashboard.dashboard()["panels"] if panel["type"] == "timeseries"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)


def test_each_alert_says_what_to_do() -> None:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"].endswith(".")
            assert rule["annotations"]["description"]
            assert rule["labels"]["severity"] in ("critical", "warning")
