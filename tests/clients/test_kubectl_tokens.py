"""kubectl create token, and what its token is good for."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from harness import unique
from programs import Kubectl


def whoami(kubectl: Kubectl, token: str) -> str:
    """The user name the server knows the token's owner by; "" if it knows none."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    said = kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(review))
    return str(json.loads(said)["status"]["user"].get("username", ""))


def test_a_token_is_good_until_its_account_goes(kubectl: Kubectl) -> None:
    name = unique("robot")
    kubectl("create", "serviceaccount", name)
    token = kubectl("create", "token", name, "--duration", "10m").strip()
    assert whoami(kubectl, token) == f"system:serviceaccount:{kubectl.namespace}:{name}"
    assert whoami(kubectl, token + "x") == ""
    told = json.loads(kubectl("create", "token", name, "--audience", "vault", "-o", "json"))
    assert told["spec"]["audiences"] == ["vault"]
    assert whoami(kubectl, told["status"]["token"]) == ""
    kubectl("delete", "serviceaccount", name)
    assert whoami(kubectl, token) == ""


def test_a_token_is_good_until_what_it_is_bound_to_goes(kubectl: Kubectl) -> None:
    name = unique("robot")
    kubectl("create", "serviceaccount", name)
    kubectl("create", "secret", "generic", name)
    token = kubectl("create", "token", name, "--bound-object-kind", "Secret", "--bound-object-name", name).strip()
    assert whoami(kubectl, token)
    kubectl("delete", "secret", name)
    assert not whoami(kubectl, token)
    kubectl("delete", "serviceaccount", name)


def test_a_lifetime_that_is_too_short_is_refused(kubectl: Kubectl) -> None:
    name = unique("robot")
    kubectl("create", "serviceaccount", name)
    said = kubectl.refused("create", "token", name, "--duration=1m")
    assert "may not specify a duration less than 10 minutes" in said
    kubectl("delete", "serviceaccount", name)


def test_a_wrong_token_is_told_in_kubectls_words(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("get", "namespaces")  # what the server can do is known from here on
    config = yaml.safe_load(kubectl.server.kubeconfig.read_text())
    file = tmp_path / "config"
    for token in ("wrong", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9."):
        config["users"][0]["user"] = {"token": token}
        file.write_text(yaml.safe_dump(config))
        done = kubectl.call("get", "namespaces", environment={"KUBECONFIG": str(file)})
        assert done.returncode == 1
        assert done.stderr == "error: You must be logged in to the server (Unauthorized)\n"
        assert token not in done.stdout + done.stderr
