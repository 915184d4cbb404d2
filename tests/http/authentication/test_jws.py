"""Signed tokens and their keys: valid signatures verify, all others do not."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from kubechronicle.http.authentication import jws

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVES = [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()]
PRIVATE = {"RS256": RSA, **dict(zip(("ES256", "ES384", "ES512"), map(ec.generate_private_key, CURVES), strict=True))}
KEYS = {algorithm: jws.signing_key(private) for algorithm, private in PRIVATE.items()}
CLAIMS = {"iss": "me", "exp": 7, "aud": ["a", "ü"]}


def private_pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))


def public_pem(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def joined(header: Any, payload: bytes, signature: bytes = b"x" * 64) -> str:
    return ".".join(map(jws.encode, (json.dumps(header).encode(), payload, signature)))


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_key_verifies_its_own_signatures_only(algorithm: str) -> None:
    parsed = jws.parse(KEYS[algorithm].sign(CLAIMS))
    assert (parsed.claims, parsed.algorithm) == (CLAIMS, algorithm)
    for other, key in KEYS.items():
        assert key.verifying.verify(parsed) is (other == algorithm)
    stranger = jws.signing_key(ec.generate_private_key(ec.SECP256R1()))
    assert not stranger.verifying.verify(parsed)


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_key_s_id_is_the_digest_of_its_der_form(algorithm: str) -> None:
    der = PRIVATE[algorithm].public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    digest = base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode()
    assert jws.parse(KEYS[algorithm].sign({})).key_id == KEYS[algorithm].verifying.key_id == digest


def test_a_public_key_is_no_secret_to_sign_with() -> None:
    """Algorithm confusion: HS256 with the public key's text as the secret."""
    header = jws.encode(b'{"alg":"HS256"}')
    with pytest.raises(jws.BadToken):
        jws.parse(f"{header}.{jws.encode(b'{}')}.{jws.encode(b'x' * 32)}")


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c.d",
        joined({"alg": "none"}, b"{}"),
        joined({"alg": "none"}, b"{}", b""),
        joined({"alg": "RS512"}, b"{}"),
        joined({"alg": ["ES256"]}, b"{}"),
        joined({}, b"{}"),
        joined([], b"{}"),
        joined({"alg": "ES256", "kid": 7}, b"{}"),
        joined({"alg": "ES256", "crit": ["exp"]}, b"{}"),
        joined({"alg": "ES256", "b64": False}, b"{}"),
        joined({"alg": "ES256"}, b"[]"),
        joined({"alg": "ES256"}, b"{"),
        joined({"alg": "ES256"}, b'{"a":NaN}'),
        joined({"alg": "ES256"}, b"[" * 9000),
        joined({"alg": "ES256"}, b"\xff"),
        joined({"alg": "ES256"}, b"{}") + "=",
        joined({"alg": "ES256"}, b"{}") + "\n",
        " " + joined({"alg": "ES256"}, b"{}"),
        joined({"alg": "ES256"}, b'{"a":"' + b"x" * jws.MAX_TOKEN + b'"}'),
        "\ud800.\ud800.\ud800",
    ],
)
def test_invalid_tokens(token: str) -> None:
    with pytest.raises(jws.BadToken):
        jws.parse(token)


@pytest.mark.parametrize("algorithm", KEYS)
def test_every_changed_character_is_detected(algorithm: str) -> None:
    """Also the spare bits of the last character, which base64 decoders often ignore."""
    token = KEYS[algorithm].sign({})
    for position, character in enumerate(token):
        for other in ("A" if character != "A" else "B", chr(ord(character) ^ 1), chr(ord(character) ^ 2)):
            changed = token[:position] + other + token[position + 1 :]
            try:
                parsed = jws.parse(changed)
            except jws.BadToken:
                continue
            assert not KEYS[algorithm].verifying.verify(parsed), position


def test_signatures_of_another_length_are_rejected() -> None:
    head, _, signature = KEYS["ES256"].sign({}).rpartition(".")
    raw = jws.decode(signature)
    for changed in (b"", raw[:-1], raw + b"\0", b"\0" * 64, b"\xff" * 64, b"\0" + raw):
        if changed:
            assert not KEYS["ES256"].verifying.verify(jws.parse(f"{head}.{jws.encode(changed)}"))


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
@pytest.mark.parametrize("algorithm", KEYS)
def test_keys_are_read_from_private_and_public_files(algorithm: str, form: PrivateFormat) -> None:
    pem = private_pem(PRIVATE[algorithm], form)
    assert jws.signing_key_of(pem).verifying.key_id == KEYS[algorithm].verifying.key_id
    for text in (pem, public_pem(PRIVATE[algorithm])):
        assert [key.key_id for key in jws.verifying_keys_of(text)] == [KEYS[algorithm].verifying.key_id]


def test_a_file_may_hold_several_keys() -> None:
    text = b"# keys\n" + private_pem(RSA) + public_pem(PRIVATE["ES256"]) + public_pem(PRIVATE["ES256"])
    keys = jws.distinct(jws.verifying_keys_of(text))
    assert [key.algorithm for key in keys] == ["RS256", "ES256"]


WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024)


@pytest.mark.parametrize(
    ("pem", "why"),
    [
        (b"", "no"),
        (b"-----BEGIN NOTHING-----\nAAAA\n-----END NOTHING-----\n", "no"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "damaged"),
        (private_pem(ec.generate_private_key(ec.SECP256K1())), "neither RSA nor ECDSA"),
        (private_pem(ed25519.Ed25519PrivateKey.generate()), "neither RSA nor ECDSA"),
        (private_pem(WEAK), "1024 bits"),
        (
            RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")),
            "encrypted",
        ),
    ],
    ids=["empty", "no key", "damaged", "another curve", "Ed25519", "weak", "encrypted"],
)
def test_unusable_files(pem: bytes, why: str) -> None:
    for read in (jws.signing_key_of, jws.verifying_keys_of):
        with pytest.raises(jws.KeyFileError, match=why):
            read(pem)


def test_a_public_key_can_t_sign() -> None:
    with pytest.raises(jws.KeyFileError, match="no private key"):
        jws.signing_key_of(public_pem(RSA))


# -- web keys -------------------------------------------------------------------------------------------------------


def number(text: str) -> int:
    return int.from_bytes(jws.decode(text), "big")


def test_web_keys_hold_the_public_numbers() -> None:
    web_key = KEYS["RS256"].verifying.web_key()
    assert list(web_key) == ["use", "kty", "kid", "alg", "n", "e"]
    assert (web_key["kty"], web_key["alg"], web_key["e"], number(web_key["n"])) == (
        "RSA",
        "RS256",
        "AQAB",
        RSA.public_key().public_numbers().n,
    )
    for algorithm, curve, size in (("ES256", "P-256", 32), ("ES384", "P-384", 48), ("ES512", "P-521", 66)):
        web_key, private = KEYS[algorithm].verifying.web_key(), PRIVATE[algorithm]
        assert list(web_key) == ["use", "kty", "kid", "crv", "alg", "x", "y"]
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        point = private.public_key().public_numbers()
        assert (web_key["crv"], number(web_key["x"]), number(web_key["y"])) == (curve, point.x, point.y)
        assert len(jws.decode(web_key["x"])) == size
