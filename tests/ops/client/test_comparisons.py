"""`diff` of two moments, namespaces and clusters; and its patch, which makes one like the other."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from in_process import ADMIN
from server_in_thread import InThread, Running

Chronicle = Callable[..., Any]
RESOURCES = {
    "configmaps": "/api/v1/namespaces/{}/configmaps",
    "secrets": "/api/v1/namespaces/{}/secrets",
    "services": "/api/v1/namespaces/{}/services",
    "deployments.apps": "/apis/apps/v1/namespaces/{}/deployments",
}
KINDS = {
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Service": "services",
    "Deployment": "deployments.apps",
}


def apply(running: Running, script: str) -> list[str]:
    """Send the requests of a patch, as sh and kubectl would, and return the commands."""
    lines, done = iter(script.splitlines()), []
    for line in lines:
        if not line.startswith("${KUBECTL:-kubectl}"):
            assert line.startswith(("#", "set -e")), line
            continue
        words = shlex.split(line.replace("<<'END'", ""))[1:]
        done.append(" ".join(words[:2]))
        if words[0] == "create":
            body = json.loads(next(lines))
            path = RESOURCES[KINDS[body["kind"]]].format(body["metadata"]["namespace"])
            running.ask("POST", path, body)
        else:
            resource, name = words[1].split("/")
            path = f"{RESOURCES[resource].format(words[words.index('-n') + 1])}/{name}"
            if words[0] == "delete":
                running.ask("DELETE", path)
                continue
            headers = {"Content-Type": "application/json-patch+json"}
            reply = InThread(running, ADMIN).send("PATCH", path, headers, next(lines).encode())
            assert reply.status == 200, reply
        assert words[0] == "delete" or next(lines) == "END"
    return done


def test_a_patch_brings_a_past_state_back(chronicle: Chronicle, running: Running, shop: tuple[str, int]) -> None:
    name, revision = shop
    output = chronicle("diff", "-n", name, "--from", "now", "--to", str(revision), "-o", "patch", "--show-secrets")
    assert output.code == 1
    assert output.out.startswith("#!/bin/sh\n")
    assert apply(running, output.out) == [
        "create -f",
        "patch secrets/key",
        "patch deployments.apps/web",
        "delete configmaps/new",
    ]
    after = chronicle("diff", "-n", name, "--from", str(revision), "--to", "now")
    assert (after.code, after.out) == (0, "")
    again = chronicle("diff", "-n", name, "--from", "now", "--to", str(revision), "-o", "patch", "--show-secrets")
    assert again.code == 0
    # The first patch tests the values that it replaced, so it fails now.
    assert '{"op":"test","path":"/spec/replicas","value":5}' in output.out


def test_a_patch_without_values_leaves_secrets_out(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    name, revision = shop
    output = chronicle("diff", "-n", name, "--to", str(revision), "-o", "patch")
    assert f"# left out: Secret {name}/key: its values are masked; --show-secrets has them" in output.out
    assert "aHVzaA" not in output.out


@pytest.fixture
def other(running: Running, shop: tuple[str, int]) -> str:
    """Return a namespace that is like the shop but for the image, and a Service."""
    name = f"{shop[0]}-other"
    running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    container = {"name": "web", "image": "web:3"}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    running.ask("POST", RESOURCES["deployments.apps"].format(name), {"metadata": {"name": "web"}, "spec": spec})
    for namespace in (name, shop[0]):
        service = {"metadata": {"name": "web"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
        running.ask("POST", RESOURCES["services"].format(namespace), service)
    return name


def test_two_namespaces(chronicle: Chronicle, running: Running, shop: tuple[str, int], other: str) -> None:
    output = chronicle("diff", "-n", shop[0], "--to-namespace", other)
    assert output.code == 1
    assert "-      - image: web:2\n" in output.out
    assert "+      - image: web:3\n" in output.out
    assert "Service" not in output.out  # only its addresses and ports differ
    one = chronicle("diff", "deploy/web", "-n", shop[0], "--to-namespace", other, "-o", "json").json()
    assert [each["path"] for each in one["differences"][0]["diff"]] == ["/spec/template/spec/containers/0/image"]
    script = chronicle("diff", "-n", shop[0], "--to-namespace", other, "-o", "patch", "--show-secrets").out
    assert apply(running, script) == ["patch deployments.apps/web", "delete secrets/key", "delete configmaps/new"]
    after = chronicle("diff", "-n", shop[0], "--to-namespace", other)
    assert (after.code, after.out) == (0, "")


def test_two_clusters(
    chronicle: Chronicle, shop: tuple[str, int], other: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    document = {
        "clusters": [{"name": "west", "cluster": {"server": "https://in.process"}}],
        "users": [{"name": "me", "user": {"token": ADMIN}}],
        "contexts": [{"name": "west", "context": {"cluster": "west", "user": "me"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    same = chronicle("diff", "-n", shop[0], "--to-context", "west")
    assert (same.code, same.out) == (0, "")
    differs = chronicle("diff", "-n", shop[0], "--to-context", "west", "--to-namespace", other)
    assert differs.code == 1
    assert "now in west" in differs.out
    assert "web:3" in differs.out


def test_one_state_is_not_compared_with_itself(chronicle: Chronicle, shop: tuple[str, int]) -> None:
    assert "name a moment with --from" in chronicle("diff", "-n", shop[0]).err
    both = chronicle("diff", "-A", "--to-namespace", shop[0])
    assert "exclude each other" in both.err
