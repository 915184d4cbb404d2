"""A provider's public keys (JSON Web Key Sets, RFC 7517 §5), and verification of signatures (RFC 7518 §3).

A key verifies only with the algorithms of its kind: "none" and HS256 have no keys, an RSA key is never an HMAC secret,
and a curve has one algorithm. A key that is published for one algorithm, or for encryption, has no other use. Keys of
unknown kinds, and weak keys, are ignored.

    RS256 RS384 RS512   RSASSA-PKCS1-v1_5        PS256 PS384 PS512   RSASSA-PSS
    ES256 ES384 ES512   ECDSA on P-256, P-384, P-521: r and s concatenated

As in kube-apiserver v1.36 there is no EdDSA.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from kubechronicle.http.authentication import jws
from kubechronicle.http.authentication.oidc.tokens import IdToken

_HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}
_CURVES: Final[Mapping[str, tuple[ec.EllipticCurve, str]]] = {
    "P-256": (ec.SECP256R1(), "ES256"),
    "P-384": (ec.SECP384R1(), "ES384"),
    "P-521": (ec.SECP521R1(), "ES512"),
}
ALGORITHMS: Final = tuple(f"{kind}{bits}" for kind in ("ES", "PS", "RS") for bits in _HASHES)
"""Values of --oidc-signing-algs, sorted."""
_RSA_ALGORITHMS: Final = frozenset(name for name in ALGORITHMS if name[0] != "E")

# Keys of one provider. Each takes up to 0.1 ms for a token that names no key.
MAX_KEYS: Final = 64
# Bits of an RSA key: verification with larger ones is slow.
MAX_RSA_BITS: Final = 16384


class KeySetError(ValueError):
    """The document is no key set."""


@dataclass(frozen=True, slots=True)
class WebKey:
    """A public key that verifies tokens signed with one of ``algorithms``."""

    key_id: str
    public: jws.PublicKey
    algorithms: frozenset[str]
    thumbprint: str

    def verifies(self, token: IdToken) -> bool:
        """Return whether the token is signed with this key."""
        algorithm = token.algorithm
        if algorithm not in self.algorithms or (token.key_id and token.key_id != self.key_id):
            return False
        hashed = _HASHES[algorithm[2:]]
        try:
            if isinstance(self.public, rsa.RSAPublicKey):
                self.public.verify(token.signature, token.signed, _padding(algorithm, hashed), hashed)
            else:
                size = (self.public.curve.key_size + 7) // 8
                if len(token.signature) != 2 * size:
                    return False
                r, s = (int.from_bytes(token.signature[start : start + size], "big") for start in (0, size))
                self.public.verify(encode_dss_signature(r, s), token.signed, ec.ECDSA(hashed))
        except InvalidSignature:
            return False
        return True


def _padding(algorithm: str, hashed: hashes.HashAlgorithm) -> padding.AsymmetricPadding:
    if algorithm.startswith("PS"):
        return padding.PSS(padding.MGF1(hashed), padding.PSS.AUTO)
    return padding.PKCS1v15()


def parse(document: bytes) -> tuple[WebKey, ...]:
    """Return the usable keys of a key set. Raises KeySetError."""
    try:
        key_set = orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise KeySetError(f"failed to decode keys: {error}") from None
    keys = key_set.get("keys") if isinstance(key_set, dict) else None
    if not isinstance(keys, list):
        raise KeySetError("failed to decode keys: there is no list of keys")
    usable = [key for key in map(_key, keys[: 4 * MAX_KEYS]) if key is not None]
    return tuple(usable[:MAX_KEYS])


def _key(parameters: Any) -> WebKey | None:
    if not isinstance(parameters, dict) or parameters.get("use", "sig") != "sig":
        return None
    key_id, algorithm = parameters.get("kid", ""), parameters.get("alg")
    if not isinstance(key_id, str):
        return None
    try:
        public, algorithms = _public(parameters)
    except (jws.BadToken, ValueError, UnsupportedAlgorithm):
        return None
    if algorithm is not None:
        algorithms &= {algorithm} if isinstance(algorithm, str) else set()
    return WebKey(key_id, public, algorithms, jws.key_id(public)) if algorithms else None


def _public(parameters: Mapping[str, Any]) -> tuple[jws.PublicKey, frozenset[str]]:
    """Return the public key and its algorithms. Raises ValueError for an unusable key."""
    if parameters.get("kty") == "RSA":
        n, e = _number(parameters, "n"), _number(parameters, "e")
        if not jws.MIN_RSA_BITS <= n.bit_length() <= MAX_RSA_BITS:
            raise ValueError("too weak, or too large")
        return rsa.RSAPublicNumbers(e, n).public_key(), _RSA_ALGORITHMS
    if parameters.get("kty") != "EC" or parameters.get("crv") not in _CURVES:
        raise ValueError("a kind not known here")
    curve, algorithm = _CURVES[parameters["crv"]]
    point = ec.EllipticCurvePublicNumbers(_number(parameters, "x"), _number(parameters, "y"), curve)
    return point.public_key(), frozenset({algorithm})


def _number(parameters: Mapping[str, Any], name: str) -> int:
    text = parameters.get(name)
    if not isinstance(text, str) or not text or len(text) > 4096:
        raise ValueError(f"{name} is missing")
    return int.from_bytes(jws.decode(text.rstrip("=")), "big")
