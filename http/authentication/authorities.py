"""Certificate authorities: bundles in files, reloaded while the server runs, and verification of chains.

The handshake has shown that a client has the private key of its certificate, and no more. Its chain is verified here,
against the current authorities of one purpose: client certificates, or the authenticating proxy. The rules are those of
Go's crypto/x509 with the key usage clientAuth, which kube-apiserver uses:

- Each certificate is within its validity and signed by the next, whose key is not longer than MAX_RSA_BITS.
- Each issuer is an authority whose path length allows the chain below it.
- No extended key usage in the chain excludes clients.
- A certificate with an unknown critical extension is rejected (RFC 5280 §4.2).
- Under name constraints, a certificate with alternative names is rejected.
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
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

log = logging.getLogger(__name__)

# Seconds between two checks of the files: at once for the operator, and free for most requests.
LOOK_INTERVAL = 0.01
# Certificates in a chain, intermediates that are looked at, and signatures verified to find one (Go: 100). Anybody can
# send a certificate, so these bound what a handshake may cost: some 30 ms.
MAX_CHAIN: Final = 8
MAX_INTERMEDIATES: Final = 16
MAX_SIGNATURES: Final = 30
# Longer keys are refused (Go's crypto/tls): to verify a signature of one takes milliseconds.
MAX_RSA_BITS: Final = 8192

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
# Kinds of name constraints that do not concern a certificate without alternative names.
_ALTERNATIVE: Final = (x509.DNSName, x509.IPAddress, x509.RFC822Name, x509.UniformResourceIdentifier)


# Errors of pyca/cryptography for malformed or unsupported certificates.
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
    """A set of authorities. Compared by identity: caches of decisions hold for one bundle."""

    pem: bytes
    certificates: tuple[x509.Certificate, ...]

    @classmethod
    def of(cls, pem: bytes) -> Bundle:
        """Parse certificates. Raises ValueError without any, or if one can't be parsed."""
        try:
            return cls(pem, tuple(x509.load_pem_x509_certificates(pem)))
        except UNREADABLE as error:
            raise ValueError(str(error)) from None


class Authorities:
    """The bundle of all ``files`` (PEM). If a file becomes unusable, the former bundle stays: half a written file must
    not lock all clients out.
    """

    def __init__(self, files: Sequence[str | Path]) -> None:
        """Read the files. Raises OSError or ValueError."""
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
        # Stored before the attempt, so that an unusable file is logged once.
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
        return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)

    def _read(self) -> Bundle:
        parts = [Path(file).read_bytes() for file in self._files]
        for part in parts:
            Bundle.of(part)  # each must hold a certificate
        return Bundle.of(b"\n".join(parts))


def chain_to(
    authorities: Sequence[x509.Certificate], leaf: x509.Certificate, others: Sequence[x509.Certificate], now: float
) -> list[x509.Certificate] | None:
    """Return a chain from the certificate to an authority, None if there is none.

    The chain is valid for a client at ``now`` (seconds since the epoch). ``others``: the intermediates that the client
    sent. An authority's own certificate is a chain.
    """
    others = others[:MAX_INTERMEDIATES]
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
                complete = search([*chain, issuer])
                if complete is not None:
                    return complete
        return None

    try:
        return search([leaf]) if _usable(leaf, now) else None
    except UNREADABLE:
        return None


def _signed(child: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        key = issuer.public_key()
        if isinstance(key, RSAPublicKey) and key.key_size > MAX_RSA_BITS:
            return False
        child.verify_directly_issued_by(issuer)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


def _usable(certificate: x509.Certificate, now: float) -> bool:
    """Return whether a certificate is valid at ``now``, has no unknown critical extension, and is usable by clients.

    One without extended key usage is usable for everything.
    """
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
    """Return whether the certificate is a valid authority that may issue the last certificate of ``chain``."""
    if not _usable(certificate, now):
        return False
    authority = certificate.version is x509.Version.v1  # v1 has no such extension: the operator who trusts it decides
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
    """Return the first and last moment of validity, in seconds since the epoch."""
    return certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
