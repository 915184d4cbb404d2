"""Ten thousand mutated or random credentials: every one is rejected, all with the same answer."""

from __future__ import annotations

import base64
import random
from typing import Any

from certificates import CA
from cryptography import x509
from in_process import ADMIN, CLIENT_CA, ISSUER_NAME, SERVICE_ACCOUNT_KEY, InProcess, open_server
from trio.testing import MockClock

from kubechronicle.http.authentication.chain import SUBPROTOCOL
from kubechronicle.http.authentication.credentials import (
    STANDARD,
    AuthenticatingProxy,
    ClientCertificates,
    ProxyHeaders,
)
from kubechronicle.http.messages import SUBPROTOCOLS, Request

PROXIES = CA("proxies")
PROXY = ProxyHeaders(**{name: getattr(STANDARD, name) for name in ("username", "uid", "group", "extra_prefix")})
PLAN = {
    "authenticators": [AuthenticatingProxy(PROXIES.bundle, PROXY), ClientCertificates(CLIENT_CA.bundle)],
    "bootstrap_tokens": True,
}
BOOTSTRAP = "abcdef.0123456789abcdef"
PROXY_HEADERS = {"x-remote-user": "root", "x-remote-group": "system:masters"}
TOKENS, CERTIFICATES = 7000, 3000


def changed(chance: random.Random, good: bytes, letters: bytes | None) -> bytes:
    """Return the bytes with one to three of them changed, removed, inserted or swapped. ``letters``: allowed bytes."""
    mutated = bytearray(good)
    while bytes(mutated) == good:
        for _ in range(chance.randint(1, 3)):
            place, new = chance.randrange(len(mutated)), chance.choice(letters) if letters else chance.randrange(256)
            match chance.randrange(5):
                case 0:
                    mutated[place] = new
                case 1:
                    mutated[place] ^= 1 << chance.randrange(7 if letters else 8)
                case 2:
                    del mutated[place]
                case 3:
                    mutated.insert(place, new)
                case _:
                    other = chance.randrange(len(mutated))
                    mutated[place], mutated[other] = mutated[other], mutated[place]
    return bytes(mutated)


async def good_tokens(server: InProcess) -> list[str]:
    account = await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    token_request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    bound = await server.post("/api/v1/namespaces/default/serviceaccounts/robot/token", token_request)
    data = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
    metadata, kind = {"name": "bootstrap-token-abcdef"}, "bootstrap.kubernetes.io/token"
    body = {"metadata": metadata, "type": kind, "stringData": data}
    await server.post("/api/v1/namespaces/kube-system/secrets", body)
    claims = {
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:default:robot",
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "kept",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": account["metadata"]["uid"],
    }
    kept = SERVICE_ACCOUNT_KEY.sign(claims)
    annotations = {"kubernetes.io/service-account.name": "robot"}
    secret = {"metadata": {"name": "kept", "annotations": annotations}, "stringData": {"token": kept}}
    await server.post("/api/v1/namespaces/default/secrets", {**secret, "type": "kubernetes.io/service-account-token"})
    return [bound["status"]["token"], kept, BOOTSTRAP, ADMIN]


def signed_by_nobody(token: str) -> list[str]:
    """Return tokens with these claims and headers that need no key."""
    claims = token.split(".")[1]

    def part(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    key = SERVICE_ACCOUNT_KEY.verifying.key_id
    heads = ['{"alg":"none"}', '{"alg":"None","typ":"JWT"}', f'{{"alg":"HS256","kid":"{key}"}}', '{"alg":"ES256"}']
    return [f"{part(head)}.{claims}.{mark}" for head in heads for mark in ("", "AAAA", part("x" * 64))]


def signed_part(der: bytes) -> bytes:
    return x509.load_der_x509_certificate(der).tbs_certificate_bytes


class Offer:
    """The part of an upgrade that authentication uses."""

    protocol = "websocket"


def request_with(chance: random.Random, token: str) -> Request:
    """Return a request with the token in a header field or subprotocol."""
    if chance.randrange(4):
        scheme = chance.choice(["Bearer", "bearer", "BEARER"])
        return Request.of("GET", "/api", headers={"authorization": f"{scheme} {token}", **PROXY_HEADERS})
    request = Request.of("GET", "/api", headers=PROXY_HEADERS)
    encoded = base64.urlsafe_b64encode(token.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    request.headers.replace(SUBPROTOCOLS, f"{SUBPROTOCOL}{encoded}, x")
    request.upgrade = Offer()  # type: ignore[assignment]
    return request


async def is_authenticated(server: InProcess, request: Request) -> bool:
    """Return whether the request is authenticated."""
    response = await server.assembly.application.application(request)
    assert isinstance(response.body, bytes)
    assert response.status in (200, 401, 403), response.body
    return response.status != 401 and b"system:anonymous" not in response.body


async def test_changed_credentials_are_rejected(autojump_clock: MockClock) -> None:
    chance = random.Random(20261121)
    async with open_server(namespaces=("default", "kube-system"), other=PLAN) as server:
        tokens = await good_tokens(server)
        for token in tokens:
            assert await is_authenticated(server, request_with(chance, token))
        for number in range(TOKENS):
            good = tokens[number % len(tokens)]
            letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
            if number % 10 == 9:
                token = bytes(chance.choices(letters, k=chance.randrange(1, 200))).decode()
            else:
                token = changed(chance, good.encode(), letters).decode("latin-1")
            if token.strip() not in tokens and token.split(" ")[0] not in tokens:
                assert not await is_authenticated(server, request_with(chance, token)), token
        for token in [each for good in tokens[:2] for each in signed_by_nobody(good)]:
            assert not await is_authenticated(server, request_with(chance, token)), token
        front, client = PROXIES.client("front"), CLIENT_CA.client("jane", "system:masters")
        for der in (front, client):
            assert await is_authenticated(
                server, Request.of("GET", "/api", headers=PROXY_HEADERS, peer_certificate=der)
            )
        for number in range(CERTIFICATES):
            good_der = (front, client)[number % 2]
            der = changed(chance, good_der, None)
            if signed_part(good_der) in der:
                continue  # another way to write the same signature
            request = Request.of("GET", "/api", headers=PROXY_HEADERS, peer_certificate=der)
            assert not await is_authenticated(server, request), der.hex()


async def test_every_rejection_has_the_same_answer(autojump_clock: MockClock) -> None:
    chance = random.Random(7)
    stranger, expired = CA("clients").client("jane"), CLIENT_CA.client("jane", start=-2, end=-1)
    async with open_server(namespaces=("default", "kube-system"), other=PLAN) as server:
        tokens = await good_tokens(server)
        other = SERVICE_ACCOUNT_KEY.sign({"iss": ISSUER_NAME, "aud": ["elsewhere"], "sub": "x", "exp": 4e9})
        old = SERVICE_ACCOUNT_KEY.sign({"iss": ISSUER_NAME, "aud": [ISSUER_NAME], "sub": "x", "exp": 1})
        wrong: list[dict[str, Any]] = [
            *({"token": token} for token in ("x", "abcdef.0123456789abcdee", other, old, *signed_by_nobody(tokens[0]))),
            *({"token": changed(chance, token.encode(), b"az09").decode("latin-1")} for token in tokens),
            *({"token": "", "certificate": der} for der in (stranger, expired, b"x", CLIENT_CA.der[:-1])),
        ]
        answers = set()
        for each in wrong:
            answer = await server.ask("GET", "/api/v1/namespaces", **each)
            headers = [pair for pair in answer.headers if pair[0] not in ("audit-id", "date")]
            answers.add((answer.status, answer.body, tuple(headers)))
        assert len(answers) == 1
        assert next(iter(answers))[0] == 401
