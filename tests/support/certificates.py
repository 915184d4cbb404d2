"""Certificate authorities for tests, and certificates of every kind: valid, expired, for another use, malformed."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubechronicle.http.authentication.authorities import Bundle

DAY = datetime.timedelta(days=1)
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
CN, O = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME  # noqa: E741 - its usual name
Subject = tuple[x509.ObjectIdentifier, str]


def subject_of(user: str, *groups: str) -> list[Subject]:
    return [*((O, group) for group in groups), (CN, user)]


class CA:
    """A certificate authority. ``parent`` None: it signs itself."""

    def __init__(self, name: str, *, parent: CA | None = None, days: float = 1, **options: Any) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(CN, name)])
        issuer = parent if parent is not None else self
        self.certificate = issuer.sign([(CN, name)], self.key, end=days, usage=None, authority=True, **options)
        self.pem = self.certificate.public_bytes(Encoding.PEM)
        self.der = self.certificate.public_bytes(Encoding.DER)

    def sign(
        self,
        subject: Sequence[Subject],
        key: Any,
        *,
        usage: Sequence[x509.ObjectIdentifier] | None = (CLIENT,),
        start: float = -1,
        end: float = 1,
        authority: bool | None = False,
        length: int | None = None,
        extensions: Sequence[tuple[x509.ExtensionType, bool]] = (),
    ) -> x509.Certificate:
        """Sign a certificate. ``start``, ``end``: days from now. ``authority`` None: without basic constraints."""
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(oid, value) for oid, value in subject]))
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + start * DAY)
            .not_valid_after(now + end * DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        if authority is not None:
            builder = builder.add_extension(x509.BasicConstraints(authority, length), critical=True)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, *subject: Subject, **options: Any) -> bytes:
        """Return a certificate (DER) for a test that needs no key of it. Options as of ``sign``."""
        return self.sign(subject, self.key, **options).public_bytes(Encoding.DER)

    def client(self, user: str, *groups: str, **options: Any) -> bytes:
        """Return a client certificate (DER)."""
        return self.issue(*subject_of(user, *groups), **options)

    def bundle(self) -> Bundle:
        """Return the authority as Authorities.current does."""
        return _BUNDLES.setdefault(self.pem, Bundle.of(self.pem))

    def files(
        self, folder: Path, name: str, *subject: Subject, chain: Sequence[CA] = (), **options: Any
    ) -> tuple[Path, Path]:
        """Write a certificate, followed by those of ``chain``, and its key to files for a TLS client or server."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.sign(subject, key, **options).public_bytes(Encoding.PEM)
        files = folder / f"{name}.crt", folder / f"{name}.key"
        files[0].write_bytes(certificate + b"".join(each.pem for each in chain))
        files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files


_BUNDLES: dict[bytes, Bundle] = {}
