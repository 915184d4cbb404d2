"""Certificates: made once, made again when they must be, and believed by OpenSSL."""

from __future__ import annotations

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


@pytest.fixture
def made(tmp_path: Path) -> pki.Pki:
    found = pki.Pki(tmp_path)
    assert found.ensure(NAMES) == ["ca", "apiserver", "admin"]
    return found


def test_names_are_those_clients_use() -> None:
    assert {"localhost", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"} <= set(NAMES.dns)
    assert [str(address) for address in NAMES.addresses] == ["127.0.0.1", "::1", "10.96.0.1"]


def test_what_is_good_stays(made: pki.Pki) -> None:
    before = {path: path.read_bytes() for path in made.directory.iterdir()}
    assert made.ensure(NAMES) == []
    assert {path: path.read_bytes() for path in made.directory.iterdir()} == before


def test_private_keys_are_private(made: pki.Pki) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.directory.iterdir()}
    assert {modes[name] for name in ("ca.key", "apiserver.key", "admin.key")} == {0o600}
    assert {modes[name] for name in ("ca.crt", "apiserver.crt")} == {0o644}
    assert stat.S_IMODE(made.write_admin_kubeconfig(server="https://h:1").stat().st_mode) == 0o600


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command")
@pytest.mark.parametrize(("name", "purpose"), [("apiserver", "sslserver"), ("admin", "sslclient")])
def test_openssl_believes_them(made: pki.Pki, name: str, purpose: str) -> None:
    files = ["-CAfile", str(made.ca_file), str(made.directory / f"{name}.crt")]
    subprocess.run(["openssl", "verify", "-x509_strict", "-purpose", purpose, *files], check=True, capture_output=True)


def test_a_handshake_with_both_certificates(made: pki.Pki) -> None:
    """In memory, the client verifying the name and the server the client."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*made.serving_files)
    server.load_verify_locations(made.ca_file)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=made.ca_file)
    client.load_cert_chain(made.directory / "admin.crt", made.directory / "admin.key")
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


def test_a_new_name_makes_a_new_serving_certificate(made: pki.Pki) -> None:
    more = pki.serving_names(addresses=[ipaddress.ip_address("192.0.2.7")], external_hostname="api.example.com")
    assert made.ensure(more) == ["apiserver"]
    held = x509.load_pem_x509_certificate(made.serving_files[0].read_bytes())
    names = held.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "api.example.com" in names.get_values_for_type(x509.DNSName)


def test_what_expires_soon_is_made_again(made: pki.Pki) -> None:
    short = pki.issue_client_certificate(made.authority(), "kubernetes-admin", lifetime=timedelta(days=29))
    certificate, key = short.pem()
    (made.directory / "admin.crt").write_bytes(certificate)
    (made.directory / "admin.key").write_bytes(key)
    assert made.ensure(NAMES) == ["admin"]


def test_a_new_authority_makes_everything_new(made: pki.Pki) -> None:
    made.ca_file.unlink()
    (made.directory / "ca.key").unlink()
    assert made.ensure(NAMES) == ["ca", "apiserver", "admin"]


def test_a_server_killed_while_storing_starts_again(made: pki.Pki) -> None:
    (made.directory / "apiserver.crt").unlink()  # as between the old certificate's end and the new one's coming
    assert made.ensure(NAMES) == ["apiserver"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda directory: (directory / "ca.key").unlink(), "ca.key is missing; put it back"),
        (lambda directory: (directory / "ca.crt").write_text("x"), "damaged"),
        (lambda directory: shutil.copy(directory / "admin.key", directory / "apiserver.key"), "does not belong to"),
    ],
)
def test_spoiled_files_are_told(made: pki.Pki, spoil: object, message: str) -> None:
    assert callable(spoil)
    spoil(made.directory)
    with pytest.raises(OperatorError, match=message):
        made.ensure(NAMES)


def test_kubeconfig_holds_everything(made: pki.Pki) -> None:
    document = yaml.safe_load(made.write_admin_kubeconfig(server="https://127.0.0.1:6443").read_text())
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:6443"
    assert document["current-context"] == document["contexts"][0]["name"]
    ca = document["clusters"][0]["cluster"]["certificate-authority-data"]
    assert pki.decode_data(ca) == made.ca_file.read_bytes()


def test_users_and_groups_are_names_in_the_certificate(made: pki.Pki) -> None:
    pair = pki.issue_client_certificate(made.authority(), "jane", ["developers", "on-call"])
    held = [(name.oid, name.value) for name in pair.certificate.subject]
    groups = [(NameOID.ORGANIZATION_NAME, "developers"), (NameOID.ORGANIZATION_NAME, "on-call")]
    assert held == [*groups, (NameOID.COMMON_NAME, "jane")]


def test_a_name_that_does_not_fit_is_told(made: pki.Pki) -> None:
    with pytest.raises(OperatorError, match="no certificate can hold user"):
        pki.issue_client_certificate(made.authority(), "x" * 65)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OperatorError, match="cannot keep certificates"):
        pki.Pki(tmp_path).ensure(NAMES)
