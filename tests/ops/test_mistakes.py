"""Mistakes of operators: exit code 2, one line on stderr that names the mistake, and never a traceback."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubechronicle.ops import cli
from kubechronicle.ops.client.command_table import COMMANDS as CLIENT_COMMANDS
from kubechronicle.ops.client.command_table import command_first
from kubechronicle.ops.postgres import cluster

AWAY = "postgresql://nobody@127.0.0.1:1/none"

FILE_FLAGS = (
    "admission-control-config-file", "audit-policy-file", "audit-webhook-config-file", "authentication-config",
    "authentication-token-webhook-config-file", "authorization-config", "authorization-policy-file",
    "authorization-webhook-config-file", "client-ca-file", "config", "egress-selector-config-file",
    "encryption-provider-config", "history-retention-file", "kubelet-certificate-authority",
    "requestheader-client-ca-file", "root-ca-file", "service-account-signing-key-file",
    "shared-keys-encryption-file", "token-auth-file", "tracing-config-file",
)  # fmt: skip
URL_PARAMETERS = {
    "channel_binding=require": "channel_binding=require is not supported",
    "gssencmode=require": "gssencmode=require is not supported",
    "require_auth=scram-sha-256": "require_auth=scram-sha-256 is not supported",
    "requirepeer=postgres": "requirepeer is not supported",
    "application_name=x": "application_name is not supported",
    "replication=database": "replication=database is not supported",
    "sslrootcert=system&sslmode=verify-full": "sslrootcert=system is not supported",
    "sslrootcert={dir}/missing&sslmode=verify-full": "sslrootcert: .*missing: No such file",
    "sslrootcert={dir}/bad&sslmode=verify-full": "sslrootcert: .*bad: ",
    "sslcert={dir}/one.crt&sslkey={dir}/other.key": "sslcert and sslkey: .*one.crt: KEY_VALUES_MISMATCH",
    "sslcert={dir}/one.crt&sslkey={dir}/missing": "sslkey: .*missing: No such file",
    "sslcrldir=/": "sslcrldir is not supported",
    "oauth_issuer=x": "oauth_issuer is not supported",
    "service=nowhere": "the service 'nowhere' is not in",
    "connect_timeout=soon": "connect_timeout must be a number",
    "keepalives_idle=x": "keepalives_idle must be a number",
    "load_balance_hosts=always": "load_balance_hosts must be disable or random",
    "target_session_attrs=best": "target_session_attrs",
    "sslmode=maybe": "sslmode",
    "hostaddr=localhost": "hostaddr must be a numeric address",
    "chanel_binding=prefer": "no parameter 'chanel_binding', did you mean 'channel_binding'",
    "search_path=x": "no parameter 'search_path'",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "empty").touch()
    (folder / "bad").write_text("{ no: [such")
    (folder / "binary").write_bytes(bytes(range(256)))
    (folder / "dir").mkdir()
    for name in ("one", "other"):
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a", "-days", "2"),
                *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")),
            ],
            check=True,
            capture_output=True,
        )
    pair = folder / "pair"
    pair.mkdir()
    (pair / "apiserver.crt").write_bytes((folder / "one.crt").read_bytes())
    (pair / "apiserver.key").write_bytes((folder / "other.key").read_bytes())
    half = folder / "half"
    half.mkdir()
    (half / "apiserver.crt").write_bytes((folder / "one.crt").read_bytes())
    return folder


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.fixture
def mistake(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Return a function: ``mistake("serve", …)`` runs a command that has to fail, and returns its one line."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def run(*arguments: str) -> str:
        capsys.readouterr()
        assert cli.main(arguments) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1, lines
        assert "Traceback" not in lines[0]
        return lines[0]

    return run


def serve(tmp_path: Path, *flags: str, url: str = AWAY) -> list[str]:
    database = ["--database-url", url] if url else []
    common = ["--bind-address", "127.0.0.1", "--secure-port", "0", "--storage-initialization-timeout", "0s"]
    return ["serve", *common, "--data-dir", str(tmp_path / "data"), *database, *flags]


@pytest.mark.parametrize("kind", ["missing", "dir", "empty", "bad", "binary"])
@pytest.mark.parametrize("flag", FILE_FLAGS)
def test_a_file_that_cannot_be_used(mistake, files: Path, tmp_path: Path, flag: str, kind: str) -> None:  # type: ignore[no-untyped-def]
    if kind == "empty" and flag in ("config", "token-auth-file"):
        pytest.skip("an empty file is a right one")
    line = mistake(*serve(tmp_path, f"--{flag}", str(files / kind)))
    assert flag in line or str(files / kind) in line


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tls-cert-file", "tls-private-key-file"),
        ("kubelet-client-certificate", "kubelet-client-key"),
        ("proxy-client-cert-file", "proxy-client-key-file"),
    ],
)
def test_a_certificate_that_does_not_fit(mistake, files: Path, tmp_path: Path, one: str, other: str) -> None:  # type: ignore[no-untyped-def]
    pair = [f"--{one}", str(files / "one.crt"), f"--{other}", str(files / "other.key")]
    assert f"--{one}" in mistake(*serve(tmp_path, *pair))
    assert f"--{one}" in mistake(*serve(tmp_path, *pair[:2]))


@pytest.mark.parametrize("parameters", URL_PARAMETERS)
def test_a_parameter_of_the_url(mistake, files: Path, tmp_path: Path, parameters: str) -> None:  # type: ignore[no-untyped-def]
    import re

    line = mistake(*serve(tmp_path, url=f"{AWAY}?{parameters.format(dir=files)}"))
    assert re.search(URL_PARAMETERS[parameters], line)


def test_certificates_of_a_directory(mistake, files: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert "--cert-dir: " in mistake(*serve(tmp_path, "--cert-dir", str(files / "pair")))
    assert "apiserver.key is not" in mistake(*serve(tmp_path, "--cert-dir", str(files / "half")))
    assert "--cert-dir" in mistake(*serve(tmp_path, "--cert-dir", str(files / "empty")))


def test_a_flag_that_is_written_wrong(mistake, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert "did you mean '--secure-port'?" in mistake("serve", "--secure-prt", "1")


def test_a_port_that_is_taken(mistake, tmp_path: Path, taken_port: int) -> None:  # type: ignore[no-untyped-def]
    assert str(taken_port) in mistake(*serve(tmp_path, "--secure-port", str(taken_port)))


@pytest.mark.parametrize("command", ["migrate", "verify", "compact", "backup"])
def test_a_database_that_is_away(mistake, tmp_path: Path, command: str) -> None:  # type: ignore[no-untyped-def]
    more = {"compact": ["--keep", "24h"], "backup": ["-o", str(tmp_path / "file")]}.get(command, [])
    assert "no connection to Postgres" in mistake(command, "--database-url", AWAY, *more)


@pytest.mark.parametrize("content", ["", "x\n"])
def test_a_broken_cluster(mistake, tmp_path: Path, content: str) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "data" / "postgres"
    folder.mkdir(parents=True)
    (folder / "PG_VERSION").write_text(content)
    assert "the database is damaged" in mistake(*serve(tmp_path, url=""))


def test_a_full_disk_at_the_first_start(mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cluster, "_configure", fail)
    assert "No space left on device" in mistake(*serve(tmp_path, url=""))


def test_a_data_dir_that_is_a_file(mistake, files: Path) -> None:  # type: ignore[no-untyped-def]
    assert "is not a directory" in mistake("serve", "--data-dir", str(files / "empty"))


@pytest.mark.parametrize("name", ["missing", "dir", "bad", "binary", "empty"])
def test_a_kubeconfig_that_cannot_be_used(mistake, files: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("KUBECONFIG", str(files / name))
    assert str(files / name) in mistake("log")
    assert mistake("log", "--kubeconfig", str(files / name))


def test_a_client_certificate_that_does_not_fit(mistake, files: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        ' clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}],'
        f" users: [{{name: a, user: {{client-certificate: {files}/one.crt, client-key: {files}/other.key}}}}]}}"
    )
    assert "KEY_VALUES_MISMATCH" in mistake("log", "--kubeconfig", str(config))


def test_flags_of_kubectl_before_the_command(mistake) -> None:  # type: ignore[no-untyped-def]
    assert command_first(["-n", "x", "log", "pods"]) == ["log", "-n", "x", "pods"]
    assert command_first(["-nx", "--context=a", "-s", "u", "blame", "p"]) == [
        "blame",
        "-nx",
        "--context=a",
        "-s",
        "u",
        "p",
    ]
    assert command_first(["--insecure-skip-tls-verify", "log"]) == ["log", "--insecure-skip-tls-verify"]
    for unchanged in (["serve", "-n", "x"], ["-n", "x"], ["-n"], ["--help"], ["-x", "log"], ["-n", "x", "serve"]):
        assert command_first(unchanged) == unchanged
    assert "no server is configured" in mistake("-n", "x", "log")
    assert "no server is configured" in mistake("--namespace", "x", "log")


@pytest.mark.parametrize("name", sorted(CLIENT_COMMANDS))
def test_a_command_without_a_server(mistake, capsys: pytest.CaptureFixture[str], name: str) -> None:  # type: ignore[no-untyped-def]
    if name == "completion":
        pytest.skip("it asks no server")
    mistake(name)
