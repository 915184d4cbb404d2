"""Whom to ask, and as whom: kubeconfig files, flags, credential plugins; and what is followed."""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from in_process import ADMIN
from server_in_thread import InThread, Running

from kubechronicle.ops.client import changes, credential_plugins, kubeconfig
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.transport import Wire
from kubechronicle.ops.errors import OperatorError


def document(name: str = "a", *, current: str | None = None, **user: Any) -> dict[str, Any]:
    return {
        "current-context": name if current is None else current,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"space-{name}"}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example:1"}}],
        "users": [{"name": name, "user": user or {"token": f"token-{name}"}}],
    }


def load(*arguments: str, **environment: str) -> kubeconfig.Target:
    parser = argparse.ArgumentParser()
    kubeconfig.add_flags(parser)
    return kubeconfig.load(parser.parse_args(arguments), environment)


def write(path: Path, content: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_files_are_merged_and_the_first_counts(tmp_path: Path) -> None:
    first, second = write(tmp_path / "1", document("a")), write(tmp_path / "2", document("b"))
    both = {"KUBECONFIG": f"{first}:{tmp_path / 'none'}:{second}"}
    target = load(**both)
    assert (target.server.url, target.server.token, target.namespace) == ("https://a.example:1", "token-a", "space-a")
    assert load("--context", "b", **both).server.token == "token-b"
    assert load("--context", "b", "-n", "other", **both).namespace == "other"
    changed = document("a")
    changed["clusters"][0]["cluster"]["server"] = "https://second.example"
    write(tmp_path / "2", changed)
    assert load(**both).server.url == "https://a.example:1"
    assert load("--kubeconfig", str(tmp_path / "2"), **both).server.url == "https://second.example"


def test_the_home_directory_is_looked_into(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config", document("home"))
    assert load(HOME=str(tmp_path)).server.url == "https://home.example:1"


def test_flags_count_before_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "1", document("a"))
    target = load("--kubeconfig", file, "--server", "https://x", "--token", "t", "--as", "jane", "--as-group", "g")
    assert (target.server.url, target.server.token) == ("https://x", "t")
    assert target.headers == (("Impersonate-User", "jane"), ("Impersonate-Group", "g"))
    named = {each["name"]: each for each in target.document["contexts"]}
    assert named["a"]["context"] == {"cluster": "a-asked", "user": "a-asks", "namespace": "space-a"}
    assert load("--server", "https://x", HOME=str(tmp_path)).server.url == "https://x"


def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    content = document("a", tokenFile="t")
    content["clusters"][0]["cluster"]["certificate-authority"] = "sub/ca.crt"
    target = load("--kubeconfig", write(tmp_path / "1", content))
    assert (target.server.token_file, target.server.ca) == (tmp_path / "t", tmp_path / "sub" / "ca.crt")
    assert target.document["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "sub" / "ca.crt")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "no server is known; name it with KUBECONFIG, --kubeconfig FILE or --server URL"),
        ([], "is no kubeconfig: it must be a mapping"),
        (document("a", current="b"), "there is no context 'b', only a"),
        (document("a", token=5), "token must be a string"),
        (document("a", **{"auth-provider": {"name": "gcp"}}), "auth-provider is not supported; use exec"),
        (document("a", **{"client-certificate-data": "!"}), "client-certificate-data is not base64"),
        (document("a", **{"client-certificate-data": base64.b64encode(b"x").decode()}), "needs its key"),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(OperatorError, match=said.replace("?", r"\?")):
        load("--kubeconfig", write(tmp_path / "1", content))
    with pytest.raises(OperatorError, match="cannot be read: No such file"):
        load("--kubeconfig", str(tmp_path / "none"))


V1 = "client.authentication.k8s.io/v1"


def plugin(tmp_path: Path, status: Any, **more: Any) -> dict[str, Any]:
    """One that issues this, and writes down what it was told."""
    script = tmp_path / "plugin"
    script.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"open({str(tmp_path / 'told')!r}, 'w').write(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"print(json.dumps({{'apiVersion': {V1!r}, 'kind': 'ExecCredential', 'status': {status!r} or "
        "{'token': os.environ['NAME'] + sys.argv[1]}}))\n"
    )
    script.chmod(0o755)
    found = {"apiVersion": V1, "command": "./plugin", "args": ["!"], "env": [{"name": "NAME", "value": "token"}]}
    return found | {"interactiveMode": "Never"} | more


def test_credential_plugins(tmp_path: Path) -> None:
    content = document("a", exec=plugin(tmp_path, None, provideClusterInfo=True))
    target = load("--kubeconfig", write(tmp_path / "1", content))
    assert target.plugin is not None
    assert credential_plugins.run(target.plugin, target.cluster).token == "token!"
    assert json.loads((tmp_path / "told").read_text()) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://a.example:1"}},
    }


@pytest.mark.parametrize(
    ("status", "more", "said"),
    [
        ({"x": "y"}, {}, "issued neither a token nor a certificate with its key"),
        (None, {"apiVersion": "v9"}, "exec is of v9; known are"),
        (None, {"command": "/none/x", "installHint": "get\nit"}, "cannot be run: No such file or directory; get it"),
        (None, {"args": []}, "failed with exit code 1"),
        (None, {"command": ""}, "exec names no command"),
    ],
)
def test_plugins_that_fail(tmp_path: Path, status: Any, more: Any, said: str, capfd: Any) -> None:
    target = load("--kubeconfig", write(tmp_path / "1", document("a", exec=plugin(tmp_path, status, **more))))
    with pytest.raises(OperatorError, match=said):
        Client(Wire(target)).get("/version")


def test_no_server_there(tmp_path: Path) -> None:
    client = Client(Wire(load("--server", "http://127.0.0.1:1", HOME=str(tmp_path))))
    with pytest.raises(OperatorError, match=r"no server answers at http://127.0.0.1:1 \(Connection refused\)"):
        client.get("/version")


def test_what_comes_is_followed(running: Running) -> None:
    """Of one list of revisions in order, of two as it arrives."""
    client = Client(InThread(running, ADMIN))
    running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "followed"}})
    scopes = changes.scopes_in("followed")
    after = changes.newest(client, scopes[0])
    path = "/api/v1/namespaces/followed/configmaps"
    running.ask("POST", path, {"metadata": {"name": "a"}})
    running.ask("PATCH", "/api/v1/namespaces/followed", {"metadata": {"labels": {"a": "b"}}})
    running.ask("DELETE", f"{path}/a")
    found = itertools.islice(changes.follow(client, changes.Asked(scopes), after), 3)
    assert {(each["operation"], each["object"]["name"]) for each in found} == {
        ("Create", "a"),
        ("Update", "followed"),
        ("Delete", "a"),
    }
    one = itertools.islice(changes.follow(client, changes.Asked(scopes[:1]), after), 2)
    assert [each["operation"] for each in one] == ["Create", "Delete"]
