"""The certificates that are trusted for another server, as Go trusts them: each one of the given file."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from certificates import CA
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import DNSName, SubjectAlternativeName
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubechronicle.http.outgoing.remote_server import RemoteServer, load_credentials

ROOT = CA("root")
INNER = CA("inner", parent=ROOT)
OTHER = CA("other")


@pytest.fixture(scope="module")
def leaf(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the files of a server's certificate, which INNER signed, and of its key."""
    folder, key = tmp_path_factory.mktemp("leaf"), ec.generate_private_key(ec.SECP256R1())
    names = SubjectAlternativeName([DNSName("hook.example.com")])
    usage = [ExtendedKeyUsageOID.SERVER_AUTH]
    subject = [(NameOID.COMMON_NAME, "hook.example.com")]
    certificate = INNER.sign(subject, key, usage=usage, extensions=[(names, False)])
    (folder / "leaf.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "leaf.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return folder / "leaf.crt", folder / "leaf.key"


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Raise ssl.SSLCertVerificationError if the client does not trust the server."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="hook.example.com")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for side in (ours, theirs):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()


@pytest.mark.parametrize(
    ("trusted", "accepted"),
    [("leaf", True), ("inner", True), ("root", False), ("other", False)],
)
def test_any_certificate_of_the_file_is_trusted(leaf: tuple[Path, Path], trusted: str, accepted: bool) -> None:
    """envtest gives webhooks the certificate of the server itself as caBundle. The server sends no others."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*leaf)
    pem = {"leaf": leaf[0].read_bytes(), "inner": INNER.pem, "root": ROOT.pem, "other": OTHER.pem}[trusted]
    client = load_credentials(RemoteServer(url="https://hook.example.com", ca=pem)).context
    if accepted:
        shake_hands(server, client)
    else:
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(server, client)
