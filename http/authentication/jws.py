"""Signed tokens (JWT in JWS compact form, RFC 7515 and 7519) and their keys, for service account tokens.

A key has one algorithm, and a token is verified with its key's algorithm only: "none", HS256 and other algorithms of a
header are rejected. Only the canonical encoding is accepted, so that a token with any changed character is invalid:

    base64url({"alg":"RS256","kid":…}) . base64url({claims}) . base64url(signature)       no padding, no spare bits

    RSA        RS256    PKCS #1 v1.5 with SHA-256
    EC P-256   ES256    r and s concatenated, 32 bytes each; P-384: ES384, P-521: ES512
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

# Characters of a token: the limit of a header field. A token with every claim has 1,500.
MAX_TOKEN: Final = 16 * 1024
# Smaller RSA keys are insecure (NIST SP 800-131A).
MIN_RSA_BITS: Final = 2048

_CURVES: Final[Mapping[str, tuple[str, str, hashes.HashAlgorithm]]] = {
    "secp256r1": ("ES256", "P-256", hashes.SHA256()),
    "secp384r1": ("ES384", "P-384", hashes.SHA384()),
    "secp521r1": ("ES512", "P-521", hashes.SHA512()),
}
"""Curve -> (algorithm, name in a JSON Web Key, hash): RFC 7518 §3.4."""
ALGORITHMS: Final = frozenset({"RS256", *(algorithm for algorithm, _, _ in _CURVES.values())})

_PEM_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\r?\n.*?-----END \1-----", re.DOTALL)
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")


class KeyFileError(ValueError):
    """A file's keys can't be used. The message never holds their content."""


class BadToken(ValueError):
    """The text is no valid token. The message never holds the token."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key, its id and its only algorithm."""

    public: PublicKey
    key_id: str
    algorithm: str

    def verify(self, token: Parsed) -> bool:
        """Return whether the token is signed with this key."""
        if token.algorithm != self.algorithm:
            return False
        try:
            if isinstance(self.public, rsa.RSAPublicKey):
                self.public.verify(token.signature, token.signed, padding.PKCS1v15(), hashes.SHA256())
            else:
                size = _coordinate_size(self.public)
                if len(token.signature) != 2 * size:
                    return False
                r, s = (int.from_bytes(token.signature[start : start + size], "big") for start in (0, size))
                hashed = _CURVES[self.public.curve.name][2]
                self.public.verify(encode_dss_signature(r, s), token.signed, ec.ECDSA(hashed))
        except InvalidSignature:
            return False
        return True

    def web_key(self) -> dict[str, str]:
        """Return the key as a JSON Web Key (RFC 7517), with its fields in Kubernetes' order."""
        if isinstance(self.public, rsa.RSAPublicKey):
            numbers = self.public.public_numbers()
            parameters = {"n": _encode_number(numbers.n), "e": _encode_number(numbers.e)}
            return {"use": "sig", "kty": "RSA", "kid": self.key_id, "alg": self.algorithm, **parameters}
        point, size = self.public.public_numbers(), _coordinate_size(self.public)
        curve = _CURVES[self.public.curve.name][1]
        head = {"use": "sig", "kty": "EC", "kid": self.key_id, "crv": curve, "alg": self.algorithm}
        return {**head, "x": _encode_number(point.x, size), "y": _encode_number(point.y, size)}


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key and its public key."""

    private: PrivateKey
    verifying: VerifyingKey

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a token with these claims."""
        header = orjson.dumps({"alg": self.verifying.algorithm, "kid": self.verifying.key_id})
        signed = f"{encode(header)}.{payload(claims)}"
        return f"{signed}.{encode(self.signature(signed.encode()))}"

    def signature(self, signed: bytes) -> bytes:
        """Return the signature of the first two parts of a token."""
        if isinstance(self.private, rsa.RSAPrivateKey):
            return self.private.sign(signed, padding.PKCS1v15(), hashes.SHA256())
        size = _coordinate_size(self.verifying.public)
        hashed = _CURVES[self.private.curve.name][2]
        r, s = decode_dss_signature(self.private.sign(signed, ec.ECDSA(hashed)))
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A token's parts. ``claims`` are untrusted until a key has verified the token."""

    algorithm: str
    key_id: str
    claims: dict[str, Any]
    signed: bytes
    signature: bytes


def payload(claims: Mapping[str, Any]) -> str:
    """Return the second part of a token with these claims."""
    return encode(orjson.dumps(claims, option=orjson.OPT_SORT_KEYS))


def parse(token: str) -> Parsed:
    """Parse a token. Raises BadToken if it is malformed or its algorithm is not supported."""
    parts = token.split(".", 3) if len(token) <= MAX_TOKEN else ()
    if len(parts) != 3 or not all(parts):
        raise BadToken("not three parts")
    header, claims = _json_object(parts[0]), _json_object(parts[1])
    algorithm, key_id = header.get("alg"), header.get("kid", "")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS or not isinstance(key_id, str):
        raise BadToken("not an algorithm known here")
    if "crit" in header or "b64" in header:
        raise BadToken("a header that asks for extensions")
    return Parsed(algorithm, key_id, claims, f"{parts[0]}.{parts[1]}".encode(), decode(parts[2]))


def encode(data: bytes) -> str:
    """Return base64url without padding (RFC 7515 §2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Reverse ``encode``. Raises BadToken for any other spelling of the same bytes."""
    if not _BASE64URL.fullmatch(text):
        raise BadToken("not base64url")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise BadToken("not base64url") from None
    if encode(data) != text:
        raise BadToken("spare bits that are not zero")
    return data


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(decode(text))
    except orjson.JSONDecodeError:
        raise BadToken("not JSON") from None
    if not isinstance(value, dict):
        raise BadToken("not a JSON object")
    return value


# -- keys -------------------------------------------------------------------------------------------------------------


def key_id(public: PublicKey) -> str:
    """Return Kubernetes' id of a key: base64url of the SHA-256 of its DER form (SubjectPublicKeyInfo)."""
    return encode(hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest())


def verifying_key(public: Any) -> VerifyingKey:
    """Return a public key for verification. Raises KeyFileError for an unsupported kind of key."""
    if isinstance(public, rsa.RSAPublicKey):
        if public.key_size < MIN_RSA_BITS:
            raise KeyFileError(f"its RSA key has {public.key_size} bits; at least {MIN_RSA_BITS} are needed")
        return VerifyingKey(public, key_id(public), "RS256")
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in _CURVES:
        return VerifyingKey(public, key_id(public), _CURVES[public.curve.name][0])
    raise KeyFileError("its key is neither RSA nor ECDSA on P-256, P-384 or P-521")


def signing_key(private: Any) -> SigningKey:
    """Return a private key for signing. Raises KeyFileError for an unsupported kind of key."""
    if not isinstance(private, PrivateKey):
        raise KeyFileError("its key is neither RSA nor ECDSA on P-256, P-384 or P-521")
    return SigningKey(private, verifying_key(private.public_key()))


def signing_key_of(pem: bytes) -> SigningKey:
    """Return the first private key of a PEM text. Raises KeyFileError."""
    for kind, block in _blocks(pem):
        if kind.endswith("PRIVATE KEY"):
            return signing_key(_loaded(block, kind))
    raise KeyFileError("it holds no private key (PEM)")


def verifying_keys_of(pem: bytes) -> list[VerifyingKey]:
    """Return all keys of a PEM text, also those of private keys and certificates. Raises KeyFileError."""
    keys = []
    for kind, block in _blocks(pem):
        if kind.endswith("PRIVATE KEY"):
            keys.append(verifying_key(_loaded(block, kind).public_key()))
        elif kind.endswith("PUBLIC KEY") or kind == "CERTIFICATE":
            keys.append(verifying_key(_loaded(block, kind)))
    if not keys:
        raise KeyFileError("it holds no key (PEM)")
    return keys


def distinct(keys: Sequence[VerifyingKey]) -> list[VerifyingKey]:
    """Return the keys in order, without duplicates."""
    return list({key.key_id: key for key in keys}.values())


def _blocks(pem: bytes) -> list[tuple[str, bytes]]:
    return [(match[1].decode(), match[0] + b"\n") for match in _PEM_BLOCK.finditer(pem)]


def _loaded(block: bytes, kind: str) -> Any:
    try:
        if kind == "CERTIFICATE":
            return x509.load_pem_x509_certificate(block).public_key()
        if kind.endswith("PRIVATE KEY"):
            return load_pem_private_key(block, password=None)
        return load_pem_public_key(block)
    except TypeError:
        raise KeyFileError("its private key is encrypted") from None
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError("its key is damaged or of an unknown kind") from None


def _coordinate_size(key: Any) -> int:
    return int((key.curve.key_size + 7) // 8)


def _encode_number(number: int, size: int = 0) -> str:
    return encode(number.to_bytes(size or (number.bit_length() + 7) // 8, "big"))
