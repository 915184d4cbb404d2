"""Tokens and keys: every algorithm, and everything that is no token of a trusted issuer."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from openid_provider import Key, OpenIdProvider, b64

from kubechronicle.http.authentication import jws
from kubechronicle.http.authentication.oidc import tokens, web_keys
from kubechronicle.http.authentication.oidc.claims import TokenRejected
from kubechronicle.http.authentication.oidc.web_keys import ALGORITHMS, KeySetError, WebKey

ISSUER = "https://auth.example.com"
NOW = 1_800_000_000
PROVIDER = OpenIdProvider(issuer=ISSUER)


def claims(**changes: Any) -> dict[str, Any]:
    return PROVIDER.claims(exp=NOW + 3600, iat=NOW, **changes)


def parsed(text: str) -> tokens.IdToken:
    token = tokens.parse(text)
    assert token is not None
    return token


def published(*keys: dict[str, Any]) -> tuple[WebKey, ...]:
    return web_keys.parse(json.dumps({"keys": list(keys)}).encode())


def verified(text: str, *keys: dict[str, Any]) -> bool:
    token = tokens.parse(text)
    return token is not None and any(key.verifies(token) for key in published(*keys))


def test_the_algorithms_are_kube_apiservers() -> None:
    assert ALGORITHMS == ("ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_verifies_its_signatures(algorithm: str) -> None:
    key, other = Key(algorithm), Key(algorithm, number=1)
    text = key.sign(claims())
    assert verified(text, key.web_key())
    assert verified(text, key.web_key(alg=None, use=None))
    assert verified(text, other.web_key(), key.web_key())
    assert not verified(text, other.web_key(kid=key.kid))
    assert not verified(text, key.web_key(kid="another"))
    assert not verified(text)
    unnamed = key.sign(claims(), {"kid": None})
    assert verified(unnamed, other.web_key(), key.web_key())
    head, _, signature = text.split(".")
    changed = b64(json.dumps(claims(sub="admin")).encode())
    assert not verified(f"{head}.{changed}.{signature}", key.web_key())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("other", ALGORITHMS)
def test_a_signature_is_valid_for_its_algorithm_only(algorithm: str, other: str) -> None:
    key = Key(algorithm)
    text = key.sign(claims(), {"alg": other})
    assert verified(text, key.web_key(alg=None)) == (algorithm == other)
    if algorithm != other:
        assert not verified(key.sign(claims()), key.web_key(alg=other))


def test_a_public_key_is_no_secret() -> None:
    """Algorithm confusion: HS256 with the public key as the secret."""
    key = Key()
    pem = key.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = key.private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for algorithm, digest in (("HS256", hashlib.sha256), ("HS384", hashlib.sha384), ("HS512", hashlib.sha512)):
        for secret in (pem, der, pem.strip(), b""):
            head = json.dumps({"alg": algorithm, "kid": key.kid}).encode()
            signed = f"{b64(head)}.{b64(json.dumps(claims()).encode())}"
            text = f"{signed}.{b64(hmac.new(secret, signed.encode(), digest).digest())}"
            octets = {"kty": "oct", "k": b64(secret), "kid": key.kid, "alg": algorithm}
            assert not verified(text, key.web_key(), octets)


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", "HS256", "EdDSA", "ES256K", "RS1", "rs256"])
def test_other_algorithms_are_rejected(algorithm: str) -> None:
    key = Key()
    text = key.sign(claims(), {"alg": algorithm})
    head, body, _ = text.split(".")
    for each in (text, f"{head}.{body}.", f"{head}.{body}.{b64(b'x')}"):
        assert not verified(each, key.web_key())
        token = tokens.parse(each)
        if token is not None:
            with pytest.raises(TokenRejected, match="unsupported algorithm"):
                tokens.check(token, issuer=ISSUER, audiences=("my-client",), algorithms=ALGORITHMS, now=NOW)


def test_an_ed25519_key_is_not_used() -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    raw = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    head = json.dumps({"alg": "EdDSA"}).encode()
    signed = f"{b64(head)}.{b64(json.dumps(claims()).encode())}"
    text = f"{signed}.{b64(private.sign(signed.encode()))}"
    assert not verified(text, {"kty": "OKP", "crv": "Ed25519", "x": b64(raw)})


_KEY = Key()
_WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key().public_numbers()


@pytest.mark.parametrize(
    "bad",
    [
        {"use": "enc"},
        {"use": 1},
        {"kty": "EC"},
        {"kty": None},
        {"n": None},
        {"n": ""},
        {"n": 5},
        {"n": "!!"},
        {"e": None},
        {"e": "AA"},
        {"e": "Ag"},
        {"kid": 5},
        {"alg": 5},
        {"alg": "HS256"},
        {"alg": "RSA-OAEP"},
        {"n": b64(_WEAK.n.to_bytes(128, "big"))},
        {"n": b64(b"\xff" * 3000)},
    ],
)
def test_unusable_keys_are_ignored(bad: dict[str, Any]) -> None:
    good = Key(number=1)
    keys = published({**_KEY.web_key(), **bad} if None not in bad.values() else _KEY.web_key(**bad), good.web_key())
    assert [key.key_id for key in keys] == [good.kid]


@pytest.mark.parametrize("bad", [{"crv": "P-384"}, {"crv": "secp256k1"}, {"x": "AAAA"}, {"y": None}, {"kty": "RSA"}])
def test_invalid_points_are_ignored(bad: dict[str, Any]) -> None:
    assert not published(Key("ES256").web_key(**bad))


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b"null", b"{}", b'{"keys":{}}', b'{"keys":"x"}', b"<html>"])
def test_invalid_key_sets(document: bytes) -> None:
    with pytest.raises(KeySetError):
        web_keys.parse(document)


def test_a_key_set_may_be_empty_and_is_bounded() -> None:
    assert web_keys.parse(b'{"keys":[]}') == ()
    assert web_keys.parse(b'{"keys":[null,1,"x",[]]}') == ()
    many = [Key().web_key(kid=str(number)) for number in range(web_keys.MAX_KEYS + 5)]
    assert len(published(*many)) == web_keys.MAX_KEYS


_GOOD = Key().sign(claims())
_HEAD, _BODY, _SIGNATURE = _GOOD.split(".")
_DEEP = b'{"a":' * 100 + b"1" + b"}" * 100


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "...",
        "a",
        "a.b",
        "a.b.c",
        f"{_HEAD}.{_BODY}",
        f"{_HEAD}.{_BODY}.",
        f"{_HEAD}..{_SIGNATURE}",
        f".{_BODY}.{_SIGNATURE}",
        f"{_GOOD}.x",
        f"{_GOOD}.",
        f" {_GOOD}",
        f"{_GOOD} ",
        f"{_GOOD}=",
        f"{_GOOD}\n",
        f"{_HEAD}=.{_BODY}.{_SIGNATURE}",
        f"{_HEAD}.{_BODY}==.{_SIGNATURE}",
        _GOOD.replace(".", ".\n"),
        '{"payload":"x","signatures":[]}',
        f"{b64(b'[]')}.{_BODY}.{_SIGNATURE}",
        f"{b64(b'{')}.{_BODY}.{_SIGNATURE}",
        f"{_HEAD}.{b64(b'[1]')}.{_SIGNATURE}",
        f"{_HEAD}.{b64(b'null')}.{_SIGNATURE}",
        f"{_HEAD}.{b64(bytes([0xFF]))}.{_SIGNATURE}",
        f"{b64(b'{}')}.{_BODY}.{_SIGNATURE}",
        f"{_HEAD}.{b64(_DEEP)}.{_SIGNATURE}",
    ],
)
def test_invalid_tokens(text: str) -> None:
    assert tokens.parse(text) is None


@pytest.mark.parametrize(
    "header",
    [{"crit": ["exp"]}, {"crit": []}, {"crit": None, "b64": False}, {"alg": None}, {"alg": 5}, {"kid": 5}, {"kid": []}],
)
def test_invalid_headers(header: dict[str, Any]) -> None:
    assert tokens.parse(Key().sign(claims(), header)) is None


def test_keys_in_headers_are_not_trusted() -> None:
    """jwk, jku, x5u and x5c name keys; only the provider's are used."""
    stranger = Key(number=7)
    for header in ({"jwk": stranger.web_key()}, {"jku": "https://evil"}, {"x5u": "https://evil"}, {"x5c": ["AAAA"]}):
        assert not verified(stranger.sign(claims(), {"kid": Key().kid, **header}), Key().web_key())
        assert verified(Key().sign(claims(), header), Key().web_key())


def test_a_token_that_is_too_large_is_invalid() -> None:
    assert tokens.parse(Key().sign(claims(pad="x" * jws.MAX_TOKEN))) is None


def test_one_changed_character_makes_a_token_invalid() -> None:
    random_ = random.Random(1)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
    for key in (Key(), Key("ES256")):
        text = key.sign(claims())
        for _ in range(200):
            place = random_.randrange(len(text))
            changed = text[:place] + random_.choice(alphabet.replace(text[place], "")) + text[place + 1 :]
            assert not verified(changed, key.web_key()), changed


def check(changes: dict[str, Any], **wanted: Any) -> None:
    raw = {name: value for name, value in {**claims(), **changes}.items() if value is not ...}
    arguments = {"issuer": ISSUER, "audiences": ("my-client",), "algorithms": {"RS256"}, "now": NOW, **wanted}
    tokens.check(parsed(Key().sign(raw)), **arguments)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, {}),
        ({"aud": ["other", "my-client"]}, {}),
        ({"aud": "b"}, {"audiences": ("a", "b")}),
        ({"azp": "another-client"}, {}),
        ({"azp": "another-client", "aud": ["my-client", "another-client"]}, {}),
        ({"iat": ...}, {}),
        ({"iat": NOW + 10_000_000}, {}),
        ({"iat": None}, {}),
        ({"nbf": NOW}, {}),
        ({"nbf": NOW + 59}, {}),
        ({"nbf": None}, {}),
        ({"exp": NOW}, {}),
        ({"exp": NOW + 0.9}, {}),
        ({"exp": float(NOW + 1)}, {}),
        ({"exp": str(NOW + 1)}, {}),
        ({"sub": ...}, {}),
        ({"sub": None}, {}),
        ({"nonce": "n"}, {}),
        ({"iss": "accounts.google.com"}, {"issuer": "https://accounts.google.com"}),
        ({"_claim_names": {"groups": "s"}, "_claim_sources": {"s": {"endpoint": "https://x"}}}, {}),
        ({"_claim_names": None, "_claim_sources": None}, {}),
    ],
)
def test_claims_that_pass(changes: dict[str, Any], wanted: dict[str, Any]) -> None:
    check(changes, **wanted)


@pytest.mark.parametrize(
    ("changes", "wanted", "why"),
    [
        ({"iss": "https://evil"}, {}, "issued by a different provider"),
        ({"iss": ISSUER + "/"}, {}, "issued by a different provider"),
        ({"iss": ISSUER.upper()}, {}, "issued by a different provider"),
        ({"iss": ...}, {}, "issued by a different provider"),
        ({"iss": None}, {}, "issued by a different provider"),
        ({"iss": "accounts.google.com"}, {}, "issued by a different provider"),
        ({"iss": 5}, {}, "failed to unmarshal claims"),
        ({"iss": [ISSUER]}, {}, "failed to unmarshal claims"),
        ({"aud": "other"}, {}, r'oidc: expected audience "my-client" got \["other"\]'),
        ({"aud": "other"}, {"audiences": ("b", "a")}, r'oidc: expected audience in \["a" "b"\] got \["other"\]'),
        ({"aud": []}, {}, "expected audience"),
        ({"aud": ...}, {}, "expected audience"),
        ({"aud": None}, {}, "expected audience"),
        ({"aud": "MY-CLIENT"}, {}, "expected audience"),
        ({"aud": "my-client "}, {}, "expected audience"),
        ({"aud": 5}, {}, "failed to unmarshal claims"),
        ({"aud": ["my-client", 5]}, {}, "failed to unmarshal claims"),
        ({"aud": {"my-client": 1}}, {}, "failed to unmarshal claims"),
        ({"azp": "my-client", "aud": "other"}, {}, "expected audience"),
        ({"exp": ...}, {}, "token is expired"),
        ({"exp": None}, {}, "token is expired"),
        ({"exp": 0}, {}, "token is expired"),
        ({"exp": -1}, {}, "token is expired"),
        ({"exp": NOW - 1}, {}, "token is expired"),
        ({"exp": "soon"}, {}, "failed to unmarshal claims"),
        ({"exp": ""}, {}, "failed to unmarshal claims"),
        ({"exp": True}, {}, "failed to unmarshal claims"),
        ({"exp": [NOW + 5]}, {}, "failed to unmarshal claims"),
        ({"nbf": NOW + 61}, {}, "before the nbf"),
        ({"nbf": "x"}, {}, "failed to unmarshal claims"),
        ({"nbf": {}}, {}, "failed to unmarshal claims"),
        ({"iat": "x"}, {}, "failed to unmarshal claims"),
        ({"iat": False}, {}, "failed to unmarshal claims"),
        ({"sub": 5}, {}, "failed to unmarshal claims"),
        ({"nonce": 5}, {}, "failed to unmarshal claims"),
        ({}, {"algorithms": {"PS256"}}, r'unsupported algorithm, expected \["PS256"\] got "RS256"'),
        ({}, {"algorithms": {"ES256", "ES384"}}, "unsupported algorithm"),
        ({"_claim_names": {"groups": ""}}, {}, "failed to obtain source from claim name"),
        ({"_claim_names": {"groups": "s"}}, {}, "source does not exist"),
        ({"_claim_names": {"other": "s"}, "_claim_sources": {"t": {}}}, {}, "source does not exist"),
        ({"_claim_names": []}, {}, "failed to unmarshal claims"),
        ({"_claim_names": "x"}, {}, "failed to unmarshal claims"),
        ({"_claim_names": {"groups": 1}}, {}, "failed to unmarshal claims"),
        ({"_claim_sources": {"s": "x"}}, {}, "failed to unmarshal claims"),
        ({"_claim_sources": {"s": {"endpoint": 1}}}, {}, "failed to unmarshal claims"),
    ],
)
def test_claims_that_fail(changes: dict[str, Any], wanted: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenRejected, match=why):
        check(changes, **wanted)


def test_incomplete_base64url_is_rejected() -> None:
    standard = base64.b64encode(b"\xfb\xff").decode()
    assert tokens.parse(f"{_HEAD}.{_BODY}.{standard}") is None
