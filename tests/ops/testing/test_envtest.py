"""The programs of `kubechronicle envtest`, started with the flags of controller-runtime's envtest (v0.25).

The flags are those of pkg/internal/testing/controlplane. docs/testing.md has the runs of the real suites.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import CA, CLIENT, CN, O
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

COMMAND = str(Path(sys.executable).with_name("kubechronicle"))
PATIENCE = 60.0


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    printed = subprocess.run(
        [COMMAND, "envtest", "--print-path", "--dir", str(tmp_path / "assets")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout == f"{tmp_path / 'assets'}\n"
    return tmp_path / "assets"


@pytest.fixture
def started(assets: Path, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Start both programs as envtest does, and yield the port and the directory of certificates."""
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    client_ca, pem = CA("envtest-environment"), Encoding.PEM
    (certificates / "client-cert-auth-ca.crt").write_bytes(client_ca.pem)
    key = ec.generate_private_key(ec.SECP256R1())
    admin = client_ca.sign([(O, "system:masters"), (CN, "admin")], key, usage=(CLIENT,))
    private = key.private_bytes(pem, PrivateFormat.PKCS8, NoEncryption())
    (certificates / "admin.pem").write_bytes(admin.public_bytes(pem) + private)
    signer = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (certificates / "sa-signer.key").write_bytes(
        signer.private_bytes(pem, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    )
    (certificates / "sa-signer.crt").write_bytes(
        signer.public_key().public_bytes(pem, PublicFormat.SubjectPublicKeyInfo)
    )
    etcd_port, port = _port(), _port()
    etcd = subprocess.Popen(
        [
            assets / "etcd",
            f"--advertise-client-urls=http://127.0.0.1:{etcd_port}",
            f"--data-dir={tmp_path / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{etcd_port}",
            f"--listen-peer-urls=http://127.0.0.1:{_port()}",
        ]
    )
    server = subprocess.Popen(
        [
            assets / "kube-apiserver",
            "--allow-privileged=true",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            f"--cert-dir={certificates}",
            f"--client-ca-file={certificates / 'client-cert-auth-ca.crt'}",
            "--disable-admission-plugins=ServiceAccount",
            f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            f"--secure-port={port}",
            f"--service-account-issuer=https://127.0.0.1:{port}/",
            f"--service-account-key-file={certificates / 'sa-signer.crt'}",
            f"--service-account-signing-key-file={certificates / 'sa-signer.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
        ],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        assert _answer(http.client.HTTPConnection("127.0.0.1", etcd_port, timeout=5), "/health")[0] == 200
        yield port, certificates
    finally:
        for process in (server, etcd):
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(PATIENCE) for process in (server, etcd)]
    assert codes == [0, 0]
    assert not list(tmp_path.glob("kubechronicle-*"))


def _answer(connection: http.client.HTTPConnection, path: str) -> tuple[int, bytes]:
    """Poll as envtest does, until somebody answers with 200."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            found = response.status, response.read()
        except OSError:
            connection.close()
        else:
            if found[0] == 200 or time.monotonic() > until:
                return found
        assert time.monotonic() < until
        os.sched_yield()


def test_the_control_plane_of_envtest_starts_with_its_flags(started: tuple[int, Path]) -> None:
    port, certificates = started
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    assert _answer(http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=5), "/healthz")[0] == 200
    context.load_cert_chain(certificates / "admin.pem")
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=5)
    status, body = _answer(connection, "/api/v1/namespaces")
    assert status == 200
    assert b"kube-system" in body


def test_the_programs_tell_their_flags_at_once(assets: Path) -> None:
    """envtest runs `PROGRAM --help`, and gives no flag that is not in the answer."""
    for name in ("kube-apiserver", "etcd"):
        done = subprocess.run([assets / name, "--help"], capture_output=True, text=True, check=True)
        assert "--insecure-port" not in done.stdout


def test_without_ephemeral_the_flags_of_etcd_are_refused_still(tmp_path: Path) -> None:
    command = [COMMAND, "serve", "--etcd-servers", "http://127.0.0.1:2379", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--etcd-servers: there is no etcd" in done.stderr
