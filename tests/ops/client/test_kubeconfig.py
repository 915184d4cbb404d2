"""The server and the user: kubeconfig files, flags and credential plugins; and watches of revisions."""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from in_process import ADMIN
from server_in_thread import InThread, Running

from kubechronicle.http.outgoing.kubeconfig import KubeconfigError, read_kubeconfig
from kubechronicle.http.outgoing.remote_server import load_credentials
from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.revision_reader import RevisionQuery, follow, newest_position, scopes_in
from kubechronicle.ops.client.transport import HttpTransport
from kubechronicle.ops.errors import OperatorError

KUBECTL = Path(__file__).parents[3] / ".cache" / "bin" / "kubectl"


def document(name: str = "a", *, current: str | None = None, **user: Any) -> dict[str, Any]:
    return {
        "current-context": name if current is None else current,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"space-{name}"}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example:1"}}],
        "users": [{"name": name, "user": user or {"token": f"token-{name}"}}],
    }


def load(*arguments: str, **environment: str) -> kubeconfig.ClusterTarget:
    parser = argparse.ArgumentParser()
    kubeconfig.add_flags(parser)
    return kubeconfig.load(parser.parse_args(arguments), environment)


def write(path: Path, content: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_files_are_merged_and_the_first_entry_wins(tmp_path: Path) -> None:
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


def test_the_file_in_the_home_directory_is_the_default(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config", document("home"))
    assert load(HOME=str(tmp_path)).server.url == "https://home.example:1"


def test_flags_have_precedence_over_files(tmp_path: Path) -> None:
    file = write(tmp_path / "1", document("a"))
    target = load("--kubeconfig", file, "--server", "https://x", "--token", "t", "--as", "jane", "--as-group", "g")
    assert (target.server.url, target.server.token) == ("https://x", "t")
    assert target.headers == (("Impersonate-User", "jane"), ("Impersonate-Group", "g"))
    named = {each["name"]: each for each in target.document()["contexts"]}
    assert named["a"]["context"] == {"cluster": "a-cluster", "user": "a-user", "namespace": "space-a"}
    assert load("--server", "https://x", HOME=str(tmp_path)).server.url == "https://x"


def test_paths_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    content = document("a", tokenFile="t")
    content["clusters"][0]["cluster"]["certificate-authority"] = "sub/ca.crt"
    target = load("--kubeconfig", write(tmp_path / "1", content))
    assert (target.server.token_file, target.server.ca) == (tmp_path / "t", tmp_path / "sub" / "ca.crt")
    assert target.document()["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "sub" / "ca.crt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "no server is configured; name it with KUBECONFIG, --kubeconfig FILE or --server URL"),
        ([], "is not a kubeconfig: it must be a mapping"),
        (document("a", current="b"), "there is no context 'b', only a"),
        (document("a", token=5), "token must be a string"),
        (document("a", **{"auth-provider": {"name": "gcp"}}), "auth-provider is not supported; use exec"),
        (document("a", **{"client-certificate-data": "!"}), "client-certificate-data is not base64"),
        (document("a", **{"client-certificate-data": base64.b64encode(b"x").decode()}), "needs its key"),
    ],
)
def test_unusable_kubeconfigs(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message.replace("?", r"\?")):
        load("--kubeconfig", write(tmp_path / "1", content))
    with pytest.raises(OperatorError, match="cannot be read: No such file"):
        load("--kubeconfig", str(tmp_path / "none"))


CLUSTER: dict[str, Any] = {"name": "a", "cluster": {"server": "https://a.example:1"}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clusters": [CLUSTER, CLUSTER]}, "there are two clusters 'a'"),
        ({"clusters": {"a": 1}}, "clusters must be a list"),
        ({"clusters": [5, CLUSTER]}, r"clusters\[0\] must be a mapping"),
        ({"kind": "Pod"}, 'kind must be "Config", not "Pod"'),
        ({"users": [{"name": "a"}, {"name": "b", "user": {"token": 5}}]}, "users.1..user.token must be a string"),
        (
            {"clusters": [{"name": "a", "cluster": CLUSTER["cluster"] | {"insecure-skip-tls-verify": "yes"}}]},
            "insecure-skip-tls-verify must be true or false",
        ),
        (
            {
                "clusters": [
                    {
                        "name": "a",
                        "cluster": CLUSTER["cluster"]
                        | {"certificate-authority": "ca.crt", "certificate-authority-data": "eA=="},
                    }
                ]
            },
            "certificate-authority and certificate-authority-data are both given",
        ),
    ],
)
def test_commands_webhooks_and_kubectl_refuse_the_same(tmp_path: Path, changes: Any, message: str) -> None:
    (tmp_path / "ca.crt").write_text("x")
    file = write(tmp_path / "1", document("a") | changes)
    with pytest.raises(OperatorError, match=message):
        load("--kubeconfig", file)
    with pytest.raises(KubeconfigError, match=message):
        read_kubeconfig(Path(file))
    if KUBECTL.exists():
        asked = subprocess.run([KUBECTL, f"--kubeconfig={file}", "get", "--raw=/"], capture_output=True, text=True)
        assert asked.stderr.startswith("error: "), "kubectl has used the file"


def test_paths_are_relative_to_the_link_not_to_its_target(tmp_path: Path) -> None:
    write(tmp_path / "real" / "1", document("a", tokenFile="t"))
    (tmp_path / "link").symlink_to(tmp_path / "real" / "1")
    (tmp_path / "t").write_text("here")
    assert load("--kubeconfig", str(tmp_path / "link")).server.token_file == tmp_path / "t"
    assert read_kubeconfig(tmp_path / "link").token_file == tmp_path / "t"


V1 = "client.authentication.k8s.io/v1"


def plugin(tmp_path: Path, status: Any, **more: Any) -> dict[str, Any]:
    """Write a plugin that records its input and issues ``status``, by default a token. Return its exec entry."""
    script = tmp_path / "plugin"
    script.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"open({str(tmp_path / 'info')!r}, 'w').write(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"print(json.dumps({{'apiVersion': {V1!r}, 'kind': 'ExecCredential', 'status': {status!r} or "
        "{'token': os.environ['NAME'] + sys.argv[1]}}))\n"
    )
    script.chmod(0o755)
    entry = {"apiVersion": V1, "command": "./plugin", "args": ["!"], "env": [{"name": "NAME", "value": "token"}]}
    return entry | {"interactiveMode": "Never"} | more


def test_credential_plugins(tmp_path: Path) -> None:
    content = document("a", exec=plugin(tmp_path, None, provideClusterInfo=True))
    target = load("--kubeconfig", write(tmp_path / "1", content))
    assert load_credentials(target.server).authorization == "Bearer token!"
    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://a.example:1"}},
    }


@pytest.mark.parametrize(
    ("status", "more", "message"),
    [
        ({"x": "y"}, {}, "returned no token or certificate with its key"),
        (None, {"apiVersion": "v9"}, "exec: invalid apiVersion 'v9', must be one of"),
        (None, {"command": "/none/x", "installHint": "get\nit"}, "exec: /none/x: No such file or directory; get it"),
        (None, {"args": []}, "failed with exit code 1"),
        (None, {"command": ""}, "exec: command must be specified"),
    ],
)
def test_plugins_that_fail(tmp_path: Path, status: Any, more: Any, message: str, capfd: Any) -> None:
    file = write(tmp_path / "1", document("a", exec=plugin(tmp_path, status, **more)))
    with pytest.raises(OperatorError, match=message):
        Client(HttpTransport(load("--kubeconfig", file))).get("/version")


def test_an_address_without_a_server(tmp_path: Path) -> None:
    client = Client(HttpTransport(load("--server", "http://127.0.0.1:1", HOME=str(tmp_path))))
    with pytest.raises(OperatorError, match=r"no server answers at http://127.0.0.1:1 \(Connection refused\)"):
        client.get("/version")


def test_new_revisions_are_followed(running: Running) -> None:
    """Revisions arrive in one order, of one list or of two."""
    client = Client(InThread(running, ADMIN))
    running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "followed"}})
    scopes = scopes_in("followed")
    after = newest_position(client, RevisionQuery(scopes))
    path = "/api/v1/namespaces/followed/configmaps"
    running.ask("POST", path, {"metadata": {"name": "a"}})
    running.ask("PATCH", "/api/v1/namespaces/followed", {"metadata": {"labels": {"a": "b"}}})
    running.ask("DELETE", f"{path}/a")
    both = itertools.islice(follow(client, RevisionQuery(scopes), after), 3)
    assert [(each["operation"], each["object"]["name"]) for each in both] == [
        ("Create", "a"),
        ("Update", "followed"),
        ("Delete", "a"),
    ]
    one = itertools.islice(follow(client, RevisionQuery(scopes[:1]), after), 2)
    assert [each["operation"] for each in one] == ["Create", "Delete"]
