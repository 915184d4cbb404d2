"""The Helm chart in ops/install/chart: the real Helm lints it, renders it, and installs it on our own server."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tomllib
from typing import Any

import pytest
import yaml
from harness import BINARIES, ROOT, prepare

from kubechronicle.ops import commands
from kubechronicle.ops.testing.cluster import Cluster

CHART = ROOT / "ops" / "install" / "chart"
EVERYTHING = (
    "database.cloudnativepg.enabled=true",
    "networkPolicy.enabled=true",
    "networkPolicy.from[0].ipBlock.cidr=10.0.0.0/8",
    "monitoring.serviceMonitor.enabled=true",
    "monitoring.alerts.enabled=true",
    "monitoring.dashboard.enabled=true",
    "tls.secretName=certificate",
    "extraArgs[0]=--enable-ui",
)


@pytest.fixture(scope="module", autouse=True)
def helm_program() -> None:
    prepare("helm")


def helm(*arguments: str, kubeconfig: str = os.devnull) -> str:
    command = [str(BINARIES / "helm"), *arguments]
    done = subprocess.run(
        command, env={**os.environ, "KUBECONFIG": kubeconfig}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(*values: str) -> dict[str, dict[str, Any]]:
    """Return the objects of the chart by kind."""
    sets = [part for value in values for part in ("--set", value)]
    text = helm("template", "kubechronicle", str(CHART), "--kube-version", "1.37.0", "-n", "shop", *sets)
    return {each["kind"]: each for each in yaml.safe_load_all(text) if each}


def arguments_of(deployment: dict[str, Any]) -> list[str]:
    found: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def test_the_chart_is_without_complaints_and_has_the_version_of_the_project() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (described["version"], described["appVersion"]) == (version, version)


def test_each_value_leads_to_its_objects() -> None:
    few = rendered()
    assert sorted(few) == ["Deployment", "PodDisruptionBudget", "Secret", "Service"]
    assert len(base64.b64decode(base64.b64decode(few["Secret"]["data"]["key"]))) == 32
    assert "PodDisruptionBudget" not in rendered("replicas=1")
    assert "Secret" not in rendered("sharedKeys.secretName=mine")

    many = rendered(*EVERYTHING)
    more = {"Cluster", "ConfigMap", "NetworkPolicy", "PrometheusRule", "ServiceMonitor"}
    assert set(many) == {*few, *more}
    [variable] = many["Deployment"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "kubechronicle-postgres-app", "key": "uri"}
    assert json.loads(many["ConfigMap"]["data"]["kubechronicle.json"])["panels"]
    alerts = yaml.safe_load((ROOT / "ops" / "monitoring" / "alerts.yaml").read_text())
    assert many["PrometheusRule"]["spec"] == alerts


def test_the_server_takes_the_flags_of_the_chart() -> None:
    parser = commands.make_parser(only="serve")
    arguments = parser.parse_args(["serve", *arguments_of(rendered(*EVERYTHING)["Deployment"])])
    assert vars(arguments)["external-hostname"] == "kubechronicle.shop.svc"
    assert vars(arguments)["enable-ui"] == "true"


def test_helm_installs_the_chart_on_our_own_server_and_keeps_the_key_at_an_upgrade(kubernetes: Cluster) -> None:
    place, file = ["chronicle", str(CHART), "-n", "chronicle"], str(kubernetes.kubeconfig)

    def key() -> str:
        secret = kubernetes.get("secret/chronicle-kubechronicle-shared-keys", "chronicle")
        assert secret is not None
        return str(secret["data"]["key"])

    helm("install", *place, "--create-namespace", "--set", "networkPolicy.enabled=true", kubeconfig=file)
    before = key()
    helm("upgrade", *place, "--set", "replicas=3", kubeconfig=file)
    assert key() == before
    released = json.loads(helm("list", "-n", "chronicle", "-o", "json", kubeconfig=file))
    assert [(each["name"], each["status"], each["revision"]) for each in released] == [("chronicle", "deployed", "2")]
    deployment = "deployment/chronicle-kubechronicle"
    assert kubernetes.history.of(deployment, "chronicle")[-1].fields["spec.replicas"] == (2, 3)
    helm("uninstall", "chronicle", "-n", "chronicle", kubeconfig=file)
    assert kubernetes.get(deployment, "chronicle") is None
    assert key() == before  # without it, nobody can read the authorities in the database
