"""kubectl and the OpenAPI documents: what explain shows of both versions, and typing errors in manifests.

Every test runs with the kubectl of the API version served and with the one on PATH.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness import unique
from programs import Kubectl


def screen(text: str) -> list[str]:
    """The lines on a screen, with runs of blanks as one."""
    return [" ".join(line.split()) for line in text.splitlines()]


def manifest(**spec: Any) -> str:
    labels = {"app": "t"}
    container = {"name": "main", "image": "example.invalid/main:1", "imagePulPolicy": "Always"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec |= {"selector": {"matchLabels": labels}, "template": template}
    return json.dumps(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": unique("typo")}, "spec": spec}
    )


def test_explain_shows_enums_and_what_is_required(kubectl: Kubectl) -> None:
    found = screen(kubectl("explain", "pod.spec.containers.imagePullPolicy"))
    assert found[:7] == [
        "KIND: Pod",
        "VERSION: v1",
        "",
        "FIELD: imagePullPolicy <string>",
        "ENUM:",
        "Always",
        "IfNotPresent",
    ]
    assert "Defaults to Always if :latest tag" in " ".join(found)
    recursive = kubectl("explain", "pod.spec.containers", "--recursive")
    assert "\n  env\t<[]EnvVar>\n    name\t<string> -required-\n" in recursive
    assert "\n  enum: Always, IfNotPresent, Never\n" in recursive
    assert "limits <map[string]Quantity>" in screen(recursive)


def test_explain_tells_of_the_version_asked_for(kubectl: Kubectl) -> None:
    found = screen(kubectl("explain", "deploy", "--api-version=apps/v1"))
    assert found[:3] == ["GROUP: apps", "KIND: Deployment", "VERSION: v1"]
    assert "spec <DeploymentSpec>" in found
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
    """Its protobuf form, as kubectl always asked for."""
    found = screen(kubectl("explain", "deploy.spec.strategy", "--output=plaintext-openapiv2"))
    assert found[:4] == ["KIND: Deployment", "VERSION: apps/v1", "", "RESOURCE: strategy <Object>"]
    assert {"rollingUpdate <Object>", "type <string>"} <= set(found)
    assert '- `"RollingUpdate"`' in found
    limits = screen(kubectl("explain", "pod.spec.containers.resources.limits", "--output=plaintext-openapiv2"))
    assert limits[3] == "FIELD: limits <map[string]string>"


@pytest.mark.parametrize("verb", ["create", "apply"])
def test_a_typing_error_is_refused(kubectl: Kubectl, verb: str) -> None:
    told = kubectl.refused(verb, "--validate=strict", "-f", "-", stdin=manifest(replica=2))
    assert told.endswith(
        'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: '
        'unknown field "spec.replica", unknown field "spec.template.spec.containers[0].imagePulPolicy"\n'
    )


def test_a_typing_error_is_warned_of(kubectl: Kubectl) -> None:
    done = kubectl.call("create", "--validate=warn", "--dry-run=server", "-f", "-", stdin=manifest(replica=2))
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        'Warning: unknown field "spec.replica"',
        'Warning: unknown field "spec.template.spec.containers[0].imagePulPolicy"',
    ]
    done = kubectl.call("create", "--validate=ignore", "--dry-run=server", "-f", "-", stdin=manifest(replica=2))
    assert (done.returncode, done.stderr) == (0, "")
