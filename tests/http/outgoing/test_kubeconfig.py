"""Kubeconfig files of webhooks: every field, and errors in one line."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubechronicle.http.outgoing.kubeconfig import KubeconfigError, read_kubeconfig, read_webhook_users
from kubechronicle.http.outgoing.remote_server import RemoteServer, load_credentials


def kubeconfig(folder: Path, cluster: Any = None, user: Any = None, **changes: Any) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "there", "user": "us"}}],
        "clusters": [{"name": "there", "cluster": {"server": "https://a.example/x", **(cluster or {})}}],
        "users": [{"name": "us", "user": user or {}}],
        **changes,
    }
    path = folder / "webhook.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_kubeconfig_is_read(authority: Any) -> None:
    certificate, key = authority.issue("us", client=True)
    (authority.folder / "token").write_text("t")
    cluster = {
        "certificate-authority": authority.file.name,
        "tls-server-name": "b.example",
        "proxy-url": "http://proxy:3128",
    }
    user = {"client-certificate": certificate.name, "client-key": str(key), "tokenFile": "token", "token": "old"}
    peer = read_kubeconfig(kubeconfig(authority.folder, cluster, user))
    assert peer == RemoteServer(
        url="https://a.example/x",
        ca=authority.file,
        certificate=certificate,
        key=key,
        token="old",
        token_file=authority.folder / "token",
        server_name="b.example",
        proxy_url="http://proxy:3128",
        http_allowed=True,
    )
    assert load_credentials(peer).authorization == "Bearer t"
    data = {
        f"{name}-data": base64.b64encode(path.read_bytes()).decode()
        for name, path in (("client-certificate", certificate), ("client-key", key))
    }
    authorities = {"certificate-authority-data": base64.b64encode(authority.file.read_bytes()).decode()}
    peer = read_kubeconfig(kubeconfig(authority.folder, authorities, data))
    assert (peer.ca, peer.certificate, peer.key) == (
        authority.file.read_bytes(),
        certificate.read_bytes(),
        key.read_bytes(),
    )
    assert "BEGIN" not in repr(peer).partition("key")[2]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"current-context": ""}, "current-context is not set"),
        ({"current-context": "x"}, "there is no context 'x'"),
        ({"contexts": []}, "there is no context 'here'"),
        ({"contexts": {"a": 1}}, "contexts must be a list"),
        ({"clusters": None}, "there is no cluster 'there'"),
        ({"users": []}, "there is no user 'us'"),
        ({"kind": "Pod"}, 'kind must be "Config", not "Pod"'),
        ({"cluster": {"server": ""}}, "server is not set"),
        ({"cluster": {"server": "ftp://a.example"}}, "must begin with https:// or http://"),
        ({"cluster": {"server": "https://"}}, "name a host"),
        ({"cluster": {"server": "https://a:99999"}}, "name a host"),
        ({"cluster": {"server": 1}}, "clusters[0].cluster.server must be a string"),
        ({"cluster": {"certificate-authority": "nowhere.crt"}}, "cannot read the certificate authorities"),
        ({"cluster": {"certificate-authority-data": "?"}}, "certificate-authority-data is not base64"),
        ({"cluster": {"certificate-authority-data": "aGVsbG8="}}, "holds no certificate authorities"),
        ({"cluster": {"insecure-skip-tls-verify": "yes"}}, "must be true or false"),
        (
            {"cluster": {"insecure-skip-tls-verify": True, "certificate-authority": "a"}},
            "exclude each other",
        ),
        ({"cluster": {"proxy-url": "socks5://me:secret@p:1"}}, "the proxy's URL must begin with https:// or http://"),
        ({"user": {"exec": {"command": "x"}}}, "exec: apiVersion must be specified"),
        ({"user": {"auth-provider": {"name": "x"}}}, "auth-provider is not supported"),
        ({"user": {"as": "admin"}}, "as is not supported"),
        ({"user": {"client-certificate": "x.crt"}}, "needs its key"),
        ({"user": {"client-key": "x", "client-key-data": "eA=="}}, "client-key and client-key-data are both given"),
        ({"user": {"client-key-data": "eA==", "client-certificate-data": "eA=="}}, "are no client certificate"),
        ({"user": {"token": "a", "username": "b"}}, "may be set, but not both"),
        ({"user": {"token": "a\nb"}}, "characters that no token has"),
        ({"user": {"tokenFile": "nowhere"}}, "cannot read the token"),
    ],
)
def test_unusable_kubeconfigs(tmp_path: Path, changes: Any, why: str) -> None:
    path = kubeconfig(tmp_path, **changes)
    with pytest.raises(KubeconfigError) as caught:
        read_kubeconfig(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"), [("a: [", "is not YAML at line"), ("- a", "must be a mapping"), ("", "current-context")]
)
def test_files_that_are_no_kubeconfig(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "x"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match=why):
        read_kubeconfig(path)
    with pytest.raises(KubeconfigError, match="cannot be read"):
        read_kubeconfig(tmp_path / "nowhere")


def test_users_are_named_by_the_hosts_of_webhooks(tmp_path: Path) -> None:
    names = ("hook.ns.svc", "hook.ns.svc:8443", "*.ns.svc", "*.example.com:444", "*", "[::1]:444")
    users = [{"name": name, "user": {"token": name}} for name in names]
    found = read_webhook_users(kubeconfig(tmp_path, users=users))
    hosts = {
        ("hook.ns.svc", 443): "hook.ns.svc",
        ("hook.ns.svc", 8443): "hook.ns.svc:8443",
        ("hook.ns.svc", 8444): "*",
        ("other.ns.svc", 443): "*.ns.svc",
        ("a.b.example.com", 444): "*.example.com:444",
        ("example.com", 444): "*",
        ("::1", 444): "[::1]:444",
    }
    assert {host: found.of(*host).token for host in hosts} == hosts


def test_other_webhooks_get_the_user_of_the_current_context(tmp_path: Path) -> None:
    found = read_webhook_users(kubeconfig(tmp_path, user={"username": "a", "password": "b"}))
    assert found.of("anywhere", 443).username == "a"
    assert load_credentials(found.of("anywhere", 443)).authorization.startswith("Basic ")
    anonymous = read_webhook_users(kubeconfig(tmp_path, contexts=[]))
    assert load_credentials(anonymous.of("anywhere", 443)).authorization == ""


@pytest.mark.parametrize(
    ("users", "why"),
    [
        ([{"name": "*", "user": {"exec": {"command": "x"}}}], "user '*': exec: apiVersion must be specified"),
        ([{"name": "*", "user": {"tokenFile": "nowhere"}}], "user '*': cannot read the token"),
        ([{"name": "*"}, {"name": "*"}], "there are two users '*'"),
    ],
)
def test_unusable_users(tmp_path: Path, users: Any, why: str) -> None:
    with pytest.raises(KubeconfigError) as caught:
        read_webhook_users(kubeconfig(tmp_path, users=users))
    assert why in str(caught.value)
