"""Helm, unchanged: a chart with a definition in crds/ and an object of it is installed, upgraded and uninstalled."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from custom_resources import FOLDER, undefine
from harness import BINARIES, Api, Server, prepare, unique

CHART = FOLDER / "chart"
NAME = "shops.chart.example.com"


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    prepare("helm")
    with closing(server.api()) as api:
        yield api
        undefine(api, NAME)


def test_install_upgrade_rollback_uninstall(api: Api, server: Server, tmp_path: Path) -> None:
    namespace = api.namespace(unique("helm"))
    shop = f"/apis/chart.example.com/v1/namespaces/{namespace}/shops/corner"

    def helm(*arguments: str) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(server.kubeconfig)}
        command = [str(BINARIES / "helm"), "--namespace", namespace, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}"
        assert "arning" not in done.stderr, done.stderr
        return done.stdout

    printed = helm("install", "corner", str(CHART), "--set", "open=false", "--wait")
    assert "STATUS: deployed\nREVISION: 1\n" in printed, printed
    assert api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}")["metadata"]["name"] == NAME
    first = api.get(shop)
    assert first["spec"] == {"open": False, "tills": 1, "goods": [{"name": "bread", "price": "2"}]}
    assert first["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"

    # Three-way merge by Helm, without a strategic merge patch: lists are replaced.
    printed = helm("upgrade", "corner", str(CHART), "--set", "open=true", "--set", "goods[0].name=milk", "--wait")
    assert "STATUS: deployed\nREVISION: 2\n" in printed, printed
    second = api.get(shop)
    assert (second["spec"]["open"], second["spec"]["goods"][0]["name"]) == (True, "milk")
    assert (second["metadata"]["uid"], second["metadata"]["generation"]) == (first["metadata"]["uid"], 2)
    helm("upgrade", "corner", str(CHART), "--reuse-values")
    assert api.get(shop)["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"], "nothing changed"
    helm("rollback", "corner", "1", "--wait")
    assert api.get(shop)["spec"] == first["spec"]
    assert json.loads(helm("list", "--output", "json"))[0]["revision"] == "4"

    assert helm("uninstall", "corner", "--wait") == 'release "corner" uninstalled\n'
    api.request("GET", shop).expect(404)
    assert api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}"), "Helm leaves crds/ alone"
    api.request("DELETE", f"/api/v1/namespaces/{namespace}").expect(200)
