"""Certificates: made once, renewed when necessary, and accepted by OpenSSL."""

from __future__ import annotations

import base64
import ipaddress
import os
import shutil
import ssl
import stat
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from kubechronicle.ops import pki
from kubechronicle.ops.errors import OperatorError

NAMES = pki.serving_names(addresses=[ipaddress.ip_address("0.0.0.0"), ipaddress.ip_address("10.96.0.1")])


MINE, PROXIES = ["ca", "apiserver", "admin", "apiserver-kubelet-client"], ["front-proxy-ca", "front-proxy-client"]


@pytest.fixture
def authority(tmp_path: Path) -> pki.Pki:
    new = pki.Pki(tmp_path)
    assert new.ensure(NAMES) == [*MINE, *PROXIES]
    return new


def test_the_names_are_those_that_clients_use() -> None:
    assert {"localhost", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"} <= set(NAMES.dns)
    assert [str(address) for address in NAMES.addresses] == ["127.0.0.1", "::1", "10.96.0.1"]


def test_valid_files_stay(authority: pki.Pki) -> None:
    before = {path: path.read_bytes() for path in authority.directory.iterdir()}
    assert authority.ensure(NAMES) == []
    assert {path: path.read_bytes() for path in authority.directory.iterdir()} == before


def test_private_keys_are_private(authority: pki.Pki) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in authority.directory.iterdir()}
    assert {modes[name] for name in ("ca.key", "apiserver.key", "admin.key")} == {0o600}
    assert {modes[name] for name in ("ca.crt", "apiserver.crt")} == {0o644}
    assert stat.S_IMODE(authority.write_admin_kubeconfig(server="https://h:1").stat().st_mode) == 0o600


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command")
@pytest.mark.parametrize(("name", "purpose"), [("apiserver", "sslserver"), ("admin", "sslclient")])
def test_openssl_accepts_them(authority: pki.Pki, name: str, purpose: str) -> None:
    files = ["-CAfile", str(authority.ca_file), str(authority.directory / f"{name}.crt")]
    subprocess.run(["openssl", "verify", "-x509_strict", "-purpose", purpose, *files], check=True, capture_output=True)


def test_a_handshake_with_both_certificates(authority: pki.Pki) -> None:
    """In memory, the client verifying the name and the server the client."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.serving_files)
    server.load_verify_locations(authority.ca_file)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=authority.ca_file)
    client.load_cert_chain(authority.directory / "admin.crt", authority.directory / "admin.key")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(back, there, server_hostname="kubernetes.default.svc")
    answering = server.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for side in (asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    subject = dict(part[0] for part in answering.getpeercert()["subject"])  # type: ignore[index,misc]
    assert subject == {"organizationName": "system:masters", "commonName": "kubernetes-admin"}


def test_a_new_name_makes_a_new_serving_certificate(authority: pki.Pki) -> None:
    more = pki.serving_names(addresses=[ipaddress.ip_address("192.0.2.7")], external_hostname="api.example.com")
    assert authority.ensure(more) == ["apiserver"]
    certificate = x509.load_pem_x509_certificate(authority.serving_files[0].read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "api.example.com" in names.get_values_for_type(x509.DNSName)


def test_a_certificate_that_expires_soon_is_renewed(authority: pki.Pki) -> None:
    short = pki.issue_client_certificate(authority.authority(), "kubernetes-admin", lifetime=timedelta(days=29))
    certificate, key = short.pem()
    (authority.directory / "admin.crt").write_bytes(certificate)
    (authority.directory / "admin.key").write_bytes(key)
    assert authority.ensure(NAMES) == ["admin"]


def test_a_new_authority_makes_everything_new(authority: pki.Pki) -> None:
    authority.ca_file.unlink()
    (authority.directory / "ca.key").unlink()
    assert authority.ensure(NAMES) == MINE


def test_the_front_proxy_has_an_authority_of_its_own(authority: pki.Pki) -> None:
    certificate = x509.load_pem_x509_certificate(authority.front_proxy_files[0].read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.front_proxy_ca_file.read_bytes()))
    assert certificate.subject.rfc4514_string() == "CN=front-proxy-client"
    authority.front_proxy_ca_file.unlink()
    (authority.directory / "front-proxy-ca.key").unlink()
    assert authority.ensure(NAMES) == PROXIES


def test_a_server_killed_while_storing_starts_again(authority: pki.Pki) -> None:
    # The state between the removal of the old certificate and the writing of the new one.
    (authority.directory / "apiserver.crt").unlink()
    assert authority.ensure(NAMES) == ["apiserver"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda directory: (directory / "ca.key").unlink(), "ca.key is missing; put it back"),
        (lambda directory: (directory / "ca.crt").write_text("x"), "damaged"),
        (lambda directory: shutil.copy(directory / "admin.key", directory / "apiserver.key"), "does not belong to"),
    ],
)
def test_damaged_files_are_reported(authority: pki.Pki, spoil: object, message: str) -> None:
    assert callable(spoil)
    spoil(authority.directory)
    with pytest.raises(OperatorError, match=message):
        authority.ensure(NAMES)


def test_kubeconfig_holds_everything(authority: pki.Pki) -> None:
    document = yaml.safe_load(authority.write_admin_kubeconfig(server="https://127.0.0.1:6443").read_text())
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    assert document["current-context"] == document["contexts"][0]["name"]
    ca = document["clusters"][0]["cluster"]["certificate-authority-data"]
    assert base64.b64decode(ca) == authority.ca_file.read_bytes()


def test_users_and_groups_are_names_in_the_certificate(authority: pki.Pki) -> None:
    pair = pki.issue_client_certificate(authority.authority(), "jane", ["developers", "on-call"])
    subject = [(name.oid, name.value) for name in pair.certificate.subject]
    groups = [(NameOID.ORGANIZATION_NAME, "developers"), (NameOID.ORGANIZATION_NAME, "on-call")]
    assert subject == [*groups, (NameOID.COMMON_NAME, "jane")]


def test_a_name_that_is_too_long_is_reported(authority: pki.Pki) -> None:
    with pytest.raises(OperatorError, match="no certificate can hold user"):
        pki.issue_client_certificate(authority.authority(), "x" * 65)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OperatorError, match="cannot keep certificates"):
        pki.Pki(tmp_path).ensure(NAMES)
