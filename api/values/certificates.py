"""Certificates and certificate requests: PEM (RFC 7468), PKCS #10 (RFC 2986), X.509.

Lives here: parsing, the check of a request's own signature, and its subject; errors have Go's texts. Not here: the
fields that hold certificates.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_private_key,
    load_der_public_key,
)
from cryptography.x509.oid import NameOID

REQUEST: Final = "CERTIFICATE REQUEST"
CERTIFICATE: Final = "CERTIFICATE"
MALFORMED: Final = "x509: malformed certificate"
_BLOCK: Final = re.compile(r"^-----BEGIN ([^\n]*?)-----[ \t]*\n((?:[^\n]*\n)*?)-----END \1-----[ \t]*$", re.MULTILINE)
_HEADER: Final = re.compile(r"([^:\n]+):([^\n]*)\n")
_SEQUENCE: Final = 0x30
_NO_PARAMETERS: Final = (
    "{optional:false explicit:false application:false private:false defaultValue:<nil> tag:<nil> stringType:0 "
    "timeType:0 set:false omitEmpty:false}"
)


@dataclass(frozen=True, slots=True)
class Block:
    """One PEM block: its type, the presence of headers, and its bytes."""

    kind: str
    headers: bool
    der: bytes


def pem_blocks(encoded: str) -> list[Block]:
    """Return the PEM blocks in the base64 of a text, in order; skip all other text."""
    try:
        return text_blocks(base64.b64decode(encoded).decode("latin-1"))
    except binascii.Error:
        return []


def text_blocks(text: str) -> list[Block]:
    """Return the PEM blocks of a text, in order; skip all other text."""
    text = text.replace("\r\n", "\n")
    found: list[Block] = []
    for match in _BLOCK.finditer(text):
        body, headers = match[2], False
        while header := _HEADER.match(body):
            body, headers = body[header.end() :], True
        try:
            found.append(Block(match[1], headers, base64.b64decode("".join(body.split()), validate=True)))
        except binascii.Error:
            continue
    return found


# -- requests ---------------------------------------------------------------------------------------------------------


def request_problem(encoded: str) -> str:
    """Return the problem of a PEM certificate request in base64, "" if it has none."""
    blocks = pem_blocks(encoded)
    if not blocks or blocks[0].kind != REQUEST:
        return f"PEM block type must be {REQUEST}"
    der = blocks[0].der
    problem = _outer_problem(der)
    if problem:
        return problem
    request = _request(der)
    return "asn1: structure error: malformed certificate request" if request is None else _signature_problem(request)


def _request(der: bytes) -> x509.CertificateSigningRequest | None:
    try:
        return x509.load_der_x509_csr(der)
    except (ValueError, UnsupportedAlgorithm):
        return None


def _outer_problem(der: bytes) -> str:
    """Return Go's text for a request, unless its outermost value is a sequence of the request's length."""
    if not der:
        return "asn1: syntax error: sequence truncated"
    if len(der) < 2:
        return "asn1: syntax error: truncated tag or length"
    length, start = der[1], 2
    if length & 0x80:
        count = length & 0x7F
        start = 2 + count
        if not count:
            return "asn1: syntax error: indefinite length found (not DER)"
        if len(der) < start:
            return "asn1: syntax error: truncated tag or length"
        length = int.from_bytes(der[2:start])
    if der[0] != _SEQUENCE:
        kind, tag, compound = der[0] >> 6, der[0] & 0x1F, "true" if der[0] & 0x20 else "false"
        found = f"{{class:{kind} tag:{tag} length:{length} isCompound:{compound}}}"
        return f"asn1: structure error: tags don't match (16 vs {found}) {_NO_PARAMETERS} certificateRequest @{start}"
    if len(der) < start + length:
        return "asn1: syntax error: data truncated"
    return "asn1: syntax error: trailing data" if len(der) > start + length else ""


def _is_signed_with_sha1(request: x509.CertificateSigningRequest, key: object) -> bool:
    """Verify a signature that the library no longer accepts, and Go does for requests, which are signed by themselves
    (crypto/x509: ``CertificateRequest.CheckSignature``)."""
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(request.signature, request.tbs_certrequest_bytes, padding.PKCS1v15(), hashes.SHA1())
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(request.signature, request.tbs_certrequest_bytes, ec.ECDSA(hashes.SHA1()))
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _signature_problem(request: x509.CertificateSigningRequest) -> str:
    try:
        if request.is_signature_valid:
            return ""
        key = request.public_key()
        if isinstance(request.signature_hash_algorithm, hashes.SHA1) and _is_signed_with_sha1(request, key):
            return ""
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "x509: cannot verify signature: algorithm unimplemented"
    if isinstance(key, rsa.RSAPublicKey):
        return "crypto/rsa: verification error"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return "x509: ECDSA verification failure"
    if isinstance(key, ed25519.Ed25519PublicKey):
        return "x509: Ed25519 verification failure"
    return "x509: cannot verify signature: algorithm unimplemented"


def request_organizations(encoded: str) -> list[str]:
    """Return the organizations (groups) in a certificate request; none if it is not a request."""
    return _of_subject(encoded, NameOID.ORGANIZATION_NAME)


def request_name(encoded: str) -> str:
    """Return the common name (user) in a certificate request, "" if it is not a request."""
    return next(reversed(_of_subject(encoded, NameOID.COMMON_NAME)), "")


def _of_subject(encoded: str, attribute: x509.ObjectIdentifier) -> list[str]:
    blocks = pem_blocks(encoded)
    request = _request(blocks[0].der) if blocks and blocks[0].kind == REQUEST else None
    if request is None:
        return []
    return [str(found.value) for found in request.subject.get_attributes_for_oid(attribute)]


def parse_request(encoded: str) -> x509.CertificateSigningRequest | None:
    """Return the certificate request in the base64 of DER; None if it does not parse."""
    try:
        return _request(base64.b64decode(encoded))
    except binascii.Error:
        return None


# -- keys -------------------------------------------------------------------------------------------------------------


def parse_key(encoded: str) -> object | None:
    """Return the public key in the base64 of DER (SubjectPublicKeyInfo); None if it does not parse."""
    try:
        return load_der_public_key(base64.b64decode(encoded))
    except (ValueError, UnsupportedAlgorithm):
        return None


def proves_possession(key: object, text: str, encoded: str) -> bool:
    """Tell whether a signature in base64 is that of a text by the key; RSA with PSS, and salt of any length."""
    proof, data = base64.b64decode(encoded), text.encode()
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(proof, data)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(proof, data, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, rsa.RSAPublicKey):
            pss = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.AUTO)
            key.verify(proof, data, pss, hashes.SHA256())
    except InvalidSignature:
        return False
    return True


# -- certificates -----------------------------------------------------------------------------------------------------


def chain_problem(encoded: str) -> str:
    """Return the problem of a chain of PEM certificates in base64, "" if it has none or is empty."""
    if not encoded:
        return ""
    blocks = pem_blocks(encoded)
    for block in blocks:
        if block.kind != CERTIFICATE:
            return f'only CERTIFICATE PEM blocks are allowed, found "{block.kind}"'
        if block.headers:
            return "no PEM block headers are permitted"
        if not block.der:
            return "found CERTIFICATE PEM block containing 0 certificates"
        try:
            x509.load_der_x509_certificate(block.der)
        except (ValueError, UnsupportedAlgorithm):
            return MALFORMED
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


def parse_certificate(der: bytes) -> x509.Certificate | None:
    """Return an X.509 certificate; None if it does not parse."""
    try:
        return x509.load_der_x509_certificate(der)
    except (ValueError, UnsupportedAlgorithm):
        return None


def lifetime_of(encoded: str) -> float | None:
    """Return the seconds between the two dates of the first certificate (base64 of PEM); None if it does not parse."""
    blocks = pem_blocks(encoded)
    certificate = parse_certificate(blocks[0].der) if blocks else None
    if certificate is None:
        return None
    return (certificate.not_valid_after_utc - certificate.not_valid_before_utc).total_seconds()


def anchor_problems(text: str) -> list[str]:
    """Return the problems of PEM blocks that should be the certificates of authorities, each once."""
    problems: list[str] = []
    places: dict[bytes, list[int]] = {}
    for index, block in enumerate(text_blocks(text)):
        if problem := _anchor_problem(block):
            problems.append(f"entry {index} {problem}")
        else:
            places.setdefault(block.der, []).append(index)
    if problems:
        return problems
    if not places:
        return ["at least one trust anchor must be provided"]
    return [
        f"duplicate trust anchor (indices [{' '.join(map(str, found))}])" for found in places.values() if len(found) > 1
    ]


def _anchor_problem(block: Block) -> str:
    if block.kind != CERTIFICATE:
        return f"has bad block type: {block.kind}"
    if block.headers:
        return "has PEM block headers"
    certificate = parse_certificate(block.der)
    if certificate is None:
        return "does not parse as X.509"
    try:
        is_authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        is_authority = False
    return "" if is_authority else "does not have the CA bit set"


def key_problem(key: object) -> tuple[str, str]:
    """Return the value and the problem of a public key that pods may not have: ("", "") if it is a good one."""
    if isinstance(key, ed25519.Ed25519PublicKey):
        return "", ""
    if isinstance(key, ec.EllipticCurvePublicKey):
        if key.curve.name in ("secp256r1", "secp384r1", "secp521r1"):
            return "", ""
        return f"curve P-{key.curve.key_size}", "elliptic public keys must use curve P256, P384, or P521"
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size in (3072, 4096):
            return "", ""
        return f"{key.key_size}-bit modulus", "RSA keys must have modulus size 3072 or 4096"
    return "", "unknown public key type; supported types are Ed25519, ECDSA, and RSA"


# -- key pairs ---------------------------------------------------------------------------------------------------------
#
# The check that a certificate and a private key (PEM) match, with the errors of Go's crypto/tls.


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
