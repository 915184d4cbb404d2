"""Tags and reasons with an unchanged kubectl, on a real server and database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import BINARIES, Server, prepare, unique
from programs import Kubectl

TAG = """
apiVersion: history.kubechronicle.dev/v1
kind: Tag
metadata: {name: NAME}
spec: {reason: "before the change"}
"""


@pytest.fixture
def kubectl(server: Server, tmp_path: Path) -> Kubectl:
    prepare("kubectl")
    api, name = server.api(), unique("tags")
    api.namespace(name)
    api.close()
    return Kubectl(str(BINARIES / "kubectl"), server, tmp_path, name)


def chronicle(kubectl: Kubectl, *arguments: str, code: int = 0) -> str:
    """Run our own program with the same kubeconfig, and kubectl on PATH."""
    environment = kubectl._environment() | {"KUBECONFIG": str(kubectl.server.kubeconfig)}
    environment["PATH"] = f"{BINARIES}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "kubechronicle.ops.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_any_kubectl_command_has_a_reason(kubectl: Kubectl) -> None:
    name, why = kubectl.namespace, "50% off/née? #1"
    chronicle(kubectl, "because", why, "create", "configmap", "a", "-n", name, "--from-literal", "k=v")
    chronicle(kubectl, "because", why, "label", "configmap", "a", "-n", name, "x=y")
    kubectl("annotate", "configmap", "a", "kubernetes.io/change-cause=by hand")
    found = json.loads(chronicle(kubectl, "log", "configmap/a", "-n", name, "-o", "json"))["items"]
    assert [change["reason"] for change in found] == ["by hand", why, why]
    assert not [change for change in found if "/because/" in change["request"]["uri"]]
    assert why in chronicle(kubectl, "log", "-n", name, "--reason", "50% OFF/")
    wide = kubectl("get", "revisions", "-o", "wide")
    assert "REASON" in wide
    assert why in wide


def test_kubectl_creates_shows_and_deletes_tags(kubectl: Kubectl) -> None:
    name = kubectl.namespace
    kubectl("create", "configmap", "a")
    kubectl("create", "-f", "-", stdin=TAG.replace("NAME", name))
    kubectl("delete", "configmap", "a")
    table = kubectl("get", "tags", name)
    assert table.split()[:6] == ["NAME", "REVISION", "TIME", "USER", "REASON", "AGE"]
    assert "before the change" in table
    assert "configmap/a" in chronicle(kubectl, "at", f"tag:{name}", "get", "configmaps", "-n", name, "-o", "name")
    assert "TagSpec is a moment of history" in kubectl("explain", "tag.spec")
    changed = '{"spec":{"revision":"1"}}'
    assert "field is immutable" in kubectl.refused("patch", "tag", name, "--type=merge", "-p", changed)
    kubectl("delete", "tag", name)
    assert "there is no tag" in kubectl.refused("get", "--raw", f"/history/at/tag:{name}/api/v1/namespaces")
