"""`apply --atomic`: all objects of a file, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from in_process import JOE
from server_in_thread import Running

Chronicle = Callable[..., Any]

RELEASE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: release}
data: {version: "7"}
---
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web}
  spec: {replicas: 6}
"""


def test_all_or_none(chronicle: Chronicle, shop: tuple[str, int], running: Running, tmp_path: Path) -> None:
    name, _ = shop
    file = tmp_path / "release.yaml"
    file.write_text(RELEASE)
    flags = ("--atomic", "-f", str(file), "-n", name)
    conflict = chronicle("apply", *flags)
    assert conflict.code == 1
    assert conflict.err.startswith(f"spec.changes[1] (apply Deployment {name}/web): Apply failed with 1 conflict")
    assert "nothing was changed" in conflict.err
    assert "release" not in {each["metadata"]["name"] for each in _configmaps(running, name)}
    tried = chronicle("apply", *flags, "--force-conflicts", "--dry-run")
    assert (tried.code, tried.out) == (
        0,
        "configmap/release created (dry run)\ndeployment.apps/web changed (dry run)\n",
    )
    done = chronicle("apply", *flags, "--force-conflicts")
    lines = done.out.splitlines()
    assert lines[:2] == ["configmap/release created", "deployment.apps/web changed"]
    assert lines[2].startswith("revisions ")
    assert running.ask("GET", f"/apis/apps/v1/namespaces/{name}/deployments/web")["spec"]["replicas"] == 6
    again = chronicle("apply", *flags, "-o", "json").json()
    assert [each["outcome"] for each in again["changes"]] == ["unchanged", "unchanged"]


def test_mistakes_and_rights(chronicle: Chronicle, shop: tuple[str, int], tmp_path: Path) -> None:
    file = tmp_path / "release.yaml"
    file.write_text(RELEASE)
    without = chronicle("apply", "-f", str(file))
    assert (without.code, "--atomic" in without.err) == (2, True)
    missing = chronicle("apply", "--atomic", "-f", str(tmp_path / "none"))
    assert (missing.code, "cannot be read: No such file" in missing.err) == (2, True)
    forbidden = chronicle("apply", "--atomic", "-f", str(file), "-n", shop[0], token=JOE)
    assert (forbidden.code, 'cannot create resource "transactions"' in forbidden.err) == (2, True)


def _configmaps(running: Running, namespace: str) -> list[Any]:
    items: list[Any] = running.ask("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]
    return items
