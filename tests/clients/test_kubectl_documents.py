"""kubectl and the OpenAPI documents: explain with both versions, and typing errors in manifests.

Every test runs with the kubectl of the served API version and with the one on PATH.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import unique
from programs import Kubectl


def screen(text: str) -> list[str]:
    """Return the lines of an output, with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines()]


def manifest(**spec: Any) -> str:
    labels = {"app": "t"}
    container = {"name": "main", "image": "example.invalid/main:1", "imagePulPolicy": "Always"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec |= {"selector": {"matchLabels": labels}, "template": template}
    return json.dumps(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": unique("typo")}, "spec": spec}
    )


def test_explain_shows_enums_and_required_fields(kubectl: Kubectl) -> None:
    shown = screen(kubectl("explain", "pod.spec.containers.imagePullPolicy"))
    assert shown[:7] == [
        "KIND: Pod",
        "VERSION: v1",
        "",
        "FIELD: imagePullPolicy <string>",
        "ENUM:",
        "Always",
        "IfNotPresent",
    ]
    assert "Defaults to Always if :latest tag" in " ".join(shown)
    recursive = kubectl("explain", "pod.spec.containers", "--recursive")
    assert "\n  env\t<[]EnvVar>\n    name\t<string> -required-\n" in recursive
    assert "\n  enum: Always, IfNotPresent, Never\n" in recursive
    assert "limits <map[string]Quantity>" in screen(recursive)


def test_explain_describes_the_requested_version(kubectl: Kubectl) -> None:
    shown = screen(kubectl("explain", "deploy", "--api-version=apps/v1"))
    assert shown[:3] == ["GROUP: apps", "KIND: Deployment", "VERSION: v1"]
    assert "spec <DeploymentSpec> -required-" in shown
    behavior = screen(kubectl("explain", "hpa.spec.behavior"))
    assert behavior[:5] == [
        "GROUP: autoscaling",
        "KIND: HorizontalPodAutoscaler",
        "VERSION: v2",
        "",
        "FIELD: behavior <HorizontalPodAutoscalerBehavior>",
    ]
    assert {"scaleDown <HPAScalingRules>", "scaleUp <HPAScalingRules>"} <= set(behavior)


def test_explain_reads_the_older_document(kubectl: Kubectl) -> None:
    """The protobuf form, which older kubectls request."""
    shown = screen(kubectl("explain", "deploy.spec.strategy", "--output=plaintext-openapiv2"))
    assert shown[:4] == ["KIND: Deployment", "VERSION: apps/v1", "", "RESOURCE: strategy <Object>"]
    assert {"rollingUpdate <Object>", "type <string>"} <= set(shown)
    assert any(line.startswith('- `"RollingUpdate"`') for line in shown)
    limits = screen(kubectl("explain", "pod.spec.containers.resources.limits", "--output=plaintext-openapiv2"))
    assert limits[3] == "FIELD: limits <map[string]string>"


@pytest.mark.parametrize("verb", ["create", "apply"])
def test_a_typing_error_is_rejected(kubectl: Kubectl, verb: str) -> None:
    errors = kubectl.refused(verb, "--validate=strict", "-f", "-", stdin=manifest(replica=2))
    assert errors.endswith(
        'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: '
        'unknown field "spec.replica", unknown field "spec.template.spec.containers[0].imagePulPolicy"\n'
    )


def test_a_typing_error_causes_a_warning(kubectl: Kubectl) -> None:
    done = kubectl.call("create", "--validate=warn", "--dry-run=server", "-f", "-", stdin=manifest(replica=2))
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        'Warning: unknown field "spec.replica"',
        'Warning: unknown field "spec.template.spec.containers[0].imagePulPolicy"',
    ]
    done = kubectl.call("create", "--validate=ignore", "--dry-run=server", "-f", "-", stdin=manifest(replica=2))
    assert (done.returncode, done.stderr) == (0, "")
