"""kubectl create token, and the validity of its token."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from harness import unique
from programs import Kubectl


def whoami(kubectl: Kubectl, token: str) -> str:
    """Return the user name of a token; "" if it is invalid."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    output = kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(review))
    return str(json.loads(output)["status"]["user"].get("username", ""))


def test_a_token_is_valid_until_its_account_is_deleted(kubectl: Kubectl) -> None:
    name = unique("robot")
    kubectl("create", "serviceaccount", name)
    token = kubectl("create", "token", name, "--duration", "10m").strip()
    assert whoami(kubectl, token) == f"system:serviceaccount:{kubectl.namespace}:{name}"
    assert whoami(kubectl, token + "x") == ""
    request = json.loads(kubectl("create", "token", name, "--audience", "vault", "-o", "json"))
    assert request["spec"]["audiences"] == ["vault"]
    assert whoami(kubectl, request["status"]["token"]) == ""
    kubectl("delete", "serviceaccount", name)
    assert whoami(kubectl, token) == ""


def test_a_token_is_valid_until_its_bound_object_is_deleted(kubectl: Kubectl) -> None:
    name = unique("robot")
    kubectl("create", "serviceaccount", name)
    kubectl("create", "secret", "generic", name)
    token = kubectl("create", "token", name, "--bound-object-kind", "Secret", "--bound-object-name", name).strip()
    assert whoami(kubectl, token)
    kubectl("delete", "secret", name)
    assert not whoami(kubectl, token)
    kubectl("delete", "serviceaccount", name)


def test_a_lifetime_that_is_too_short_is_rejected(kubectl: Kubectl) -> None:
    name = unique("robot")
    kubectl("create", "serviceaccount", name)
    output = kubectl.refused("create", "token", name, "--duration=1m")
    assert "may not specify a duration less than 10 minutes" in output
    kubectl("delete", "serviceaccount", name)


def test_a_wrong_token_is_reported_by_kubectl(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("get", "namespaces")  # fills the discovery cache
    config = yaml.safe_load(kubectl.server.kubeconfig.read_text())
    file = tmp_path / "config"
    for token in ("wrong", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9."):
        config["users"][0]["user"] = {"token": token}
        file.write_text(yaml.safe_dump(config))
        done = kubectl.call("get", "namespaces", environment={"KUBECONFIG": str(file)})
        assert done.returncode == 1
        assert done.stderr == "error: You must be logged in to the server (Unauthorized)\n"
        assert token not in done.stdout + done.stderr
