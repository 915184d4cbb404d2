"""A branch with real programs: kubectl, helm and `kubechronicle` work in it, and the cluster stays as it is."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from pathlib import Path

import pytest
from harness import BINARIES, Server, prepare, unique
from programs import Kubectl

from kubechronicle.ops import cli

TEMPLATE = """
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {selector: {app: shop}, ports: [{port: 80}], type: NodePort}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: shop}}
  template: {metadata: {labels: {app: shop}}, spec: {containers: [{name: web, image: nginx}]}}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}}
stringData: {password: hidden}
"""
POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}
  validations: [{expression: "object.spec.replicas <= 5", message: "at most five"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny]}
"""


def ask(config: Path, *arguments: str, code: int = 0) -> str:
    """Run `kubechronicle …` with a kubeconfig, assert its exit code, and return its output."""
    output, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        patch.setenv("KUBECONFIG", str(config))
        exit_code = cli.main(arguments)
    assert exit_code == code, f"{arguments}: {exit_code}: {output.getvalue()}{errors.getvalue()}"
    return output.getvalue()


def test_a_release_a_policy_and_a_restore_are_tried_in_a_branch(server: Server, tmp_path: Path) -> None:
    prepare("kubectl")
    prepare("helm")
    api, space, name = server.api(), unique("shop"), unique("try")
    api.namespace(space)
    cluster = Kubectl(str(BINARIES / "kubectl"), server, tmp_path, space)
    cluster("create", "configmap", "settings", "--from-literal=colour=red")
    config = tmp_path / "config"
    config.write_text(server.kubeconfig.read_text())
    ask(config, "branch", "create", name)
    cluster("delete", "configmap", "settings")
    inside_config = tmp_path / "branch"
    inside_config.write_text(ask(config, "branch", "kubeconfig", name))
    there = {"KUBECONFIG": str(inside_config), "HELM_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}

    def inside(*arguments: str, stdin: str | None = None) -> str:
        return cluster(*arguments, stdin=stdin, environment=there)

    # A Helm release, which is upgraded.
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: shop\nversion: 0.1.0\n")
    (chart / "values.yaml").write_text("replicas: 2\n")
    (chart / "templates" / "all.yaml").write_text(TEMPLATE)
    for command in (["install"], ["upgrade", "--set", "replicas=4"]):
        helm = [str(BINARIES / "helm"), command[0], "web", str(chart), "--namespace", space, *command[1:]]
        subprocess.run(helm, env={**os.environ, **there}, check=True, capture_output=True, timeout=60)
    assert inside("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "4"
    assert cluster.call("get", "deployment", "web").returncode == 1

    # A policy, which judges the writes of the branch alone.
    inside("apply", "--server-side", "-f", "-", stdin=POLICY.replace("NAME", name))
    patch = '{"spec":{"replicas":9}}'
    refused = cluster.call("patch", "deployment", "web", "-p", patch, environment=there)
    assert "at most five" in refused.stderr

    # A restore: the ConfigMap is deleted in the cluster, and then in the branch, where it is brought back.
    moment = inside("get", "configmap", "settings", "-o", "jsonpath={.metadata.resourceVersion}")
    inside("delete", "configmap", "settings")
    ask(inside_config, "restore", "configmap/settings", "-n", space, "--to", moment, "--yes")
    assert inside("get", "configmap", "settings", "-o", "jsonpath={.data.colour}") == "red"
    assert cluster.call("get", "configmap", "settings").returncode == 1

    printed = ask(config, "branch", "diff", name, "--no-status", code=1)
    assert "+++ Deployment.apps/" in printed
    assert "hidden" not in printed
    assert "hidden" not in ask(config, "branch", "diff", name, "-o", "json", code=1)
    against_now = ask(config, "branch", "diff", name, "--against", "now", "-o", "patch", code=1)
    assert "kubectl} create -f -" in against_now
    assert "left out: Secret" in against_now
    assert name in ask(config, "branch", "list")
    ask(config, "branch", "delete", name)
    assert cluster.call("get", "pods", environment=there).returncode == 1
