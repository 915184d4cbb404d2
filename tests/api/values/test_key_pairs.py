"""Certificates and private keys that do, or do not, belong together."""

from __future__ import annotations

import base64
import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kubechronicle.api.values.certificates import pair_problem


def _encoded(*parts: bytes) -> str:
    return base64.b64encode(b"".join(parts)).decode()


def _pair() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, day, day + datetime.timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def test_keys_and_certificates() -> None:
    (certificate, key), (_, other) = _pair(), _pair()
    assert pair_problem(_encoded(certificate), _encoded(key)) == ""
    assert pair_problem(_encoded(certificate), _encoded(other)) == "tls: private key does not match public key"
    assert pair_problem(_encoded(key), _encoded(certificate)).endswith("PEM inputs may have been switched")
    assert pair_problem(_encoded(certificate), _encoded(certificate)).startswith("tls: found a certificate rather")
    assert pair_problem(_encoded(certificate), "") == "tls: failed to find any PEM data in key input"
