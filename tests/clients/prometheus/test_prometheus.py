"""A real Prometheus scrapes a server, takes the shipped alerts, and answers every query of the dashboard."""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres_fixture
import pytest
import yaml
from harness import BINARIES, Api, Server, eventually, prepare, server_in

from kubechronicle.ops.development import dashboard

ALERTS = Path(dashboard.FILE).parent / "alerts.yaml"
MAPS = "/api/v1/namespaces/default/configmaps"
EMPTY = {"Errors by code", "Failed round trips", "Rejected requests"}
"""Panels without a series as long as nothing is wrong."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("prometheus-server")
    policy, tokens = folder / "policy.yaml", folder / "tokens.csv"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
    tokens.write_text("the-token-of-joe,joe,joe\n")
    audit = ["--audit-policy-file", str(policy), "--audit-log-path", str(folder / "audit.log")]
    made = server_in(folder / "data", arguments=[*audit, "--token-auth-file", str(tokens)])
    try:
        yield made.start()
    finally:
        made.close()


class Prometheus:
    """A running Prometheus."""

    def __init__(self, folder: Path, server: Server) -> None:
        self._port = postgres_fixture.free_port()
        pki = server.data_dir / "pki"
        tls = {"ca_file": "ca.crt", "cert_file": "admin.crt", "key_file": "admin.key"}
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [
                {
                    "job_name": "kubechronicle",
                    "scheme": "https",
                    "tls_config": {name: str(pki / file) for name, file in tls.items()},
                    "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}],
                }
            ],
        }
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(configuration))
        arguments = [f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
        listening = f"--web.listen-address=127.0.0.1:{self._port}"
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen([BINARIES / "prometheus", *arguments, listening], stdout=log, stderr=log)

    def ask(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            found = json.load(answer)
        assert found["status"] == "success"
        return found["data"]

    def up(self) -> bool:
        try:
            return bool(self.ask("query", query='up{job="kubechronicle"} == 1')["result"])
        except OSError:
            return False

    def series(self, query: str) -> list[Any]:
        found: list[Any] = self.ask("query", query=query)["result"]
        return found


@pytest.fixture(scope="module")
def prometheus(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    prepare("prometheus")
    made = Prometheus(tmp_path_factory.mktemp("prometheus"), server)
    try:
        eventually(made.up, "Prometheus scrapes the server")
        yield made
    finally:
        made.process.terminate()
        made.process.wait(30)


def send_requests(server: Server, api: Api) -> None:
    """Send requests of each kind that the dashboard tells apart."""
    assert api.request("POST", MAPS, {"metadata": {"generateName": "a-"}}).status == 201
    assert api.request("GET", MAPS).status == 200
    # Of a user whose priority level has queues.
    context = ssl.create_default_context(cafile=str(server.data_dir / "pki" / "ca.crt"))
    headers = {"authorization": "Bearer the-token-of-joe"}
    request = urllib.request.Request(f"https://127.0.0.1:{server.port}/version", headers=headers)
    urllib.request.urlopen(request, timeout=30, context=context).close()


def test_every_panel_has_series(server: Server, prometheus: Prometheus) -> None:
    api = server.api()
    panels = {
        panel["title"]: [target["expr"].replace("$job", "kubechronicle") for target in panel["targets"]]
        for panel in dashboard.dashboard()["panels"]
        if panel["type"] == "timeseries"
    }
    assert len(panels) > 15
    missing: set[str] = set()

    def whole() -> bool:
        send_requests(server, api)
        missing.clear()
        missing.update(title for title, queries in panels.items() if not all(map(prometheus.series, queries)))
        return missing <= EMPTY

    with contextlib.closing(server.watch(f"{MAPS}?watch=1")):
        try:
            eventually(whole, "every panel has a series", timeout=90, pause=1)
        except AssertionError:
            raise AssertionError(f"no series: {sorted(missing)}") from None


def test_every_rule_is_evaluated_and_none_fires(prometheus: Prometheus) -> None:
    def rules() -> list[Any]:
        return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]

    eventually(lambda: all(rule["health"] == "ok" for rule in rules()), "every rule is evaluated", pause=1)
    assert len(rules()) == sum(len(group["rules"]) for group in yaml.safe_load(ALERTS.read_text())["groups"])
    assert [rule["name"] for rule in rules() if rule["state"] == "firing"] == []
