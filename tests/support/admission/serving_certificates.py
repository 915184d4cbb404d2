"""Certificates of webhook servers, in files as an issuer writes them into a mounted Secret."""

from __future__ import annotations

from pathlib import Path

from certificates import CA, CN
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID


def issue(folder: Path, authority: CA, host: str) -> None:
    """Write tls.crt and tls.key for the host, and ca.crt, each replaced at once."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    usage = (ExtendedKeyUsageOID.SERVER_AUTH,)
    certificate = authority.sign([(CN, host)], key, usage=usage, extensions=[(names, False)])
    for name, data in (
        ("ca.crt", authority.pem),
        ("tls.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())),
        ("tls.crt", certificate.public_bytes(Encoding.PEM)),
    ):
        (folder / f"{name}.new").write_bytes(data)
        (folder / f"{name}.new").replace(folder / name)
