"""Whose certificates are believed: bundles of authorities in files, looked at again while the server runs, and whether
a certificate leads to one of them.

The TLS layer has verified a client's chain against all authorities together, at the handshake. Here it is verified
against those of one purpose (client certificates, or the authenticating proxy's), as they are now. The rules are those
of Go's crypto/x509 with the key usage clientAuth, as kube-apiserver asks for it: each certificate is signed by the
next, in force, and its issuer an authority that may sign so many more; no extended key usage of the chain excludes
clients. What says critical things that are not understood here leads nowhere (RFC 5280 §4.2). Name constraints are kept
by whoever has no alternative names; others lead nowhere under them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

log = logging.getLogger(__name__)

# Seconds between two looks at the files: as good as at once for whoever replaces one, and nothing to most requests.
LOOK_INTERVAL = 0.01
# Certificates in a chain, and signatures checked to find it (Go's maxChainSignatureChecks).
MAX_CHAIN: Final = 8
MAX_SIGNATURES: Final = 100

_CLIENTS: Final = frozenset({ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE})
_UNDERSTOOD: Final = frozenset(
    {
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
        ExtensionOID.CERTIFICATE_POLICIES,
        ExtensionOID.SUBJECT_KEY_IDENTIFIER,
        ExtensionOID.AUTHORITY_KEY_IDENTIFIER,
        ExtensionOID.NAME_CONSTRAINTS,
    }
)
# What name constraints may be about for them to say nothing of a certificate without alternative names.
_ALTERNATIVE: Final = (x509.DNSName, x509.IPAddress, x509.RFC822Name, x509.UniformResourceIdentifier)


# What pyca/cryptography raises for certificates, or parts of them, that are nonsense or unknown to it.
UNREADABLE: Final = (
    ValueError,
    TypeError,
    OverflowError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """Authorities at one time. Compared by identity: another bundle, another decision."""

    pem: bytes
    certificates: tuple[x509.Certificate, ...]

    @classmethod
    def of(cls, pem: bytes) -> Bundle:
        """ValueError: no certificates, or none that can be read."""
        try:
            return cls(pem, tuple(x509.load_pem_x509_certificates(pem)))
        except UNREADABLE as error:
            raise ValueError(str(error)) from None


class Authorities:
    """The bundle in ``files`` (PEM, all of them together). A file that can't be used leaves the former bundle in
    force: half a file is no reason to lock everybody out."""

    def __init__(self, files: Sequence[str | Path]) -> None:
        """OSError, ValueError: the files can't be used."""
        self._files = tuple(map(str, files))
        self._fingerprint = self._look()
        self._bundle = self._read()
        self._looked = time.monotonic()

    def current(self) -> Bundle:
        now = time.monotonic()
        if now - self._looked >= LOOK_INTERVAL:
            self._looked = now
            self._reload()
        return self._bundle

    def _reload(self) -> None:
        try:
            fingerprint = self._look()
        except OSError:
            fingerprint = ()
        if fingerprint == self._fingerprint:
            return
        # Remembered before the attempt: what can't be used is told once.
        self._fingerprint = fingerprint
        try:
            bundle = self._read()
        except (OSError, ValueError) as error:
            log.warning("Authorities not reloaded, the former ones stay: %s", error)
            return
        if bundle.pem != self._bundle.pem:
            self._bundle = bundle
            log.info("Authorities reloaded from %s", ", ".join(self._files))

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        stats = map(os.stat, self._files)
        return tuple((found.st_mtime_ns, found.st_size, found.st_ino) for found in stats)

    def _read(self) -> Bundle:
        parts = [Path(file).read_bytes() for file in self._files]
        for part in parts:
            Bundle.of(part)  # each must hold some
        return Bundle.of(b"\n".join(parts))


def chain_to(
    authorities: Sequence[x509.Certificate], leaf: x509.Certificate, others: Sequence[x509.Certificate], now: float
) -> list[x509.Certificate] | None:
    """A chain of the certificate, good for a client at ``now`` (seconds since the epoch), over any of the ``others``
    the client sent along, to one of the authorities; None if there is none. An authority that is itself shown leads
    to itself."""
    checks = iter(range(MAX_SIGNATURES))

    def search(chain: list[x509.Certificate]) -> list[x509.Certificate] | None:
        child = chain[-1]
        if child in authorities:
            return chain
        if len(chain) == MAX_CHAIN:
            return None
        for issuer in (*authorities, *others):
            if issuer in chain or issuer.subject != child.issuer or not _may_issue(issuer, chain, now):
                continue
            if next(checks, None) is None:
                return None
            if _signed(child, issuer):
                found = search([*chain, issuer])
                if found is not None:
                    return found
        return None

    try:
        return search([leaf]) if _usable(leaf, now) else None
    except UNREADABLE:
        return None


def _signed(child: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        child.verify_directly_issued_by(issuer)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


def _usable(certificate: x509.Certificate, now: float) -> bool:
    """In force, understood, and not for something else alone. One that does not say what it is for is for all."""
    begins, ends = validity(certificate)
    if not begins <= now <= ends:
        return False
    for extension in certificate.extensions:
        if extension.critical and extension.oid not in _UNDERSTOOD:
            return False
        if isinstance(extension.value, x509.ExtendedKeyUsage) and _CLIENTS.isdisjoint(extension.value):
            return False
    return True


def _may_issue(certificate: x509.Certificate, chain: Sequence[x509.Certificate], now: float) -> bool:
    """Whether it is an authority in force, over a chain that begins at the leaf."""
    if not _usable(certificate, now):
        return False
    authority = certificate.version is x509.Version.v1  # which cannot say: whoever trusts it has
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.BasicConstraints):
            length = extension.value.path_length
            if length is not None and len(chain) - 1 > length:
                return False
            authority = extension.value.ca
        elif isinstance(extension.value, x509.KeyUsage):
            if not extension.value.key_cert_sign:
                return False
        elif isinstance(extension.value, x509.NameConstraints) and not _within(extension.value, chain[0]):
            return False
    return authority


def _within(constraints: x509.NameConstraints, leaf: x509.Certificate) -> bool:
    trees = (*(constraints.permitted_subtrees or ()), *(constraints.excluded_subtrees or ()))
    if not all(isinstance(tree, _ALTERNATIVE) for tree in trees):
        return False
    return all(extension.oid != ExtensionOID.SUBJECT_ALTERNATIVE_NAME for extension in leaf.extensions)


def validity(certificate: x509.Certificate) -> tuple[float, float]:
    """From when to when, in seconds since the epoch."""
    return certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
