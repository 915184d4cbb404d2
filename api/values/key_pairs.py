"""The check that a certificate and a private key (PEM) match, with the errors of Go's crypto/tls."""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_private_key

from kubechronicle.api.values.certificates import CERTIFICATE, MALFORMED, pem_blocks

_NO_BLOCK: Final = "tls: failed to find any PEM data in {} input"
_SKIPPED: Final = "after skipping PEM blocks of the following types: {}"
_SWITCHED: Final = (
    "tls: failed to find certificate PEM data in certificate input, but did find a private key; "
    "PEM inputs may have been switched"
)
_NO_KEY: Final = "tls: found a certificate rather than a key in the PEM for the private key"
_UNREADABLE: Final = "tls: failed to parse private key"
_OTHER_TYPE: Final = "tls: private key type does not match public key type"
_OTHER_KEY: Final = "tls: private key does not match public key"
_UNKNOWN: Final = "tls: unknown public key algorithm"
_ALGORITHMS: Final[tuple[tuple[type, type], ...]] = (
    (rsa.RSAPublicKey, rsa.RSAPrivateKey),
    (ec.EllipticCurvePublicKey, ec.EllipticCurvePrivateKey),
    (ed25519.Ed25519PublicKey, ed25519.Ed25519PrivateKey),
)


def pair_problem(certificate: str, key: str) -> str:
    """Return the reason that no server can use this pair (both in base64), "" if a server can."""
    blocks = pem_blocks(certificate)
    chain = [block.der for block in blocks if block.kind == CERTIFICATE]
    if not chain:
        return _no_certificate([block.kind for block in blocks])
    skipped: list[str] = []
    for block in pem_blocks(key):
        if block.kind == "PRIVATE KEY" or block.kind.endswith(" PRIVATE KEY"):
            return _mismatch(chain[0], block.der)
        skipped.append(block.kind)
    if not skipped:
        return _NO_BLOCK.format("key")
    if skipped == [CERTIFICATE]:
        return _NO_KEY
    wanted = 'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input'
    return f"{wanted} {_SKIPPED.format(_listed(skipped))}"


def _listed(kinds: list[str]) -> str:
    return f"[{' '.join(kinds)}]"


def _no_certificate(skipped: list[str]) -> str:
    if not skipped:
        return _NO_BLOCK.format("certificate")
    if len(skipped) == 1 and skipped[0].endswith("PRIVATE KEY"):
        return _SWITCHED
    return f'tls: failed to find "CERTIFICATE" PEM block in certificate input {_SKIPPED.format(_listed(skipped))}'


def _mismatch(certificate: bytes, key: bytes) -> str:
    try:
        public = x509.load_der_x509_certificate(certificate).public_key()
    except UnsupportedAlgorithm:
        return _UNKNOWN
    except ValueError:
        return MALFORMED
    private = _private_key(key)
    if private is None:
        return _UNREADABLE
    for open_type, secret_type in _ALGORITHMS:
        if isinstance(public, open_type):
            if not isinstance(private, secret_type):
                return _OTHER_TYPE
            form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            same = private.public_key().public_bytes(*form) == public.public_bytes(*form)
            return "" if same else _OTHER_KEY
    return _UNKNOWN


def _private_key(der: bytes) -> PrivateKeyTypes | None:
    try:
        return load_der_private_key(der, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
