"""Ten thousand credentials that are nearly good, or nothing at all: not one gets in, and no answer tells what was wrong
with it."""

from __future__ import annotations

import base64
import random
from typing import Any

from certificates import CA
from cryptography import x509
from in_process import ADMIN, CLIENT_CA, ISSUER_NAME, SERVICE_ACCOUNT_KEY, InProcess, open_server
from trio.testing import MockClock

from kubechronicle.http.authentication.bearer import SUBPROTOCOL
from kubechronicle.http.authentication.request_header import STANDARD, AuthenticatingProxy, ProxyHeaders
from kubechronicle.http.authentication.x509 import ClientCertificates
from kubechronicle.http.messages import Request

PROXIES = CA("proxies")
PROXY = ProxyHeaders(**{name: getattr(STANDARD, name) for name in ("username", "uid", "group", "extra_prefix")})
PLAN = {
    "authenticators": [AuthenticatingProxy(PROXIES.bundle, PROXY), ClientCertificates(CLIENT_CA.bundle)],
    "bootstrap_tokens": True,
}
BOOTSTRAP = "abcdef.0123456789abcdef"
TOLD = {"x-remote-user": "root", "x-remote-group": "system:masters"}
TOKENS, CERTIFICATES = 7000, 3000


def changed(chance: random.Random, good: bytes, letters: bytes | None) -> bytes:
    """The bytes with one to three of them changed, left out, put in, or swapped; of ``letters`` if given."""
    found = bytearray(good)
    while bytes(found) == good:
        for _ in range(chance.randint(1, 3)):
            place, new = chance.randrange(len(found)), chance.choice(letters) if letters else chance.randrange(256)
            match chance.randrange(5):
                case 0:
                    found[place] = new
                case 1:
                    found[place] ^= 1 << chance.randrange(7 if letters else 8)
                case 2:
                    del found[place]
                case 3:
                    found.insert(place, new)
                case _:
                    other = chance.randrange(len(found))
                    found[place], found[other] = found[other], found[place]
    return bytes(found)


async def good_tokens(server: InProcess) -> list[str]:
    account = await server.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    bound = await server.post("/api/v1/namespaces/default/serviceaccounts/robot/token", asked)
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
    """A token's claims under headers that would do without the key."""
    claims = token.split(".")[1]

    def part(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    key = SERVICE_ACCOUNT_KEY.verifying.key_id
    heads = ['{"alg":"none"}', '{"alg":"None","typ":"JWT"}', f'{{"alg":"HS256","kid":"{key}"}}', '{"alg":"ES256"}']
    return [f"{part(head)}.{claims}.{mark}" for head in heads for mark in ("", "AAAA", part("x" * 64))]


def signed_part(der: bytes) -> bytes:
    return x509.load_der_x509_certificate(der).tbs_certificate_bytes


class Socket:
    """As much of a WebSocket as authentication looks at."""

    def __init__(self, *offered: str) -> None:
        self.subprotocols = offered

    def withdraw(self, prefix: str) -> None:
        self.subprotocols = tuple(each for each in self.subprotocols if not each.startswith(prefix))


def shown(chance: random.Random, token: str) -> Request:
    """A request that shows the token, in one of the ways there are."""
    if chance.randrange(4):
        scheme = chance.choice(["Bearer", "bearer", "BEARER"])
        return Request.of("GET", "/api", headers={"authorization": f"{scheme} {token}", **TOLD})
    request = Request.of("GET", "/api", headers=TOLD)
    encoded = base64.urlsafe_b64encode(token.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    request.websocket = Socket(SUBPROTOCOL + encoded, "x")  # type: ignore[assignment]
    return request


async def got_in(server: InProcess, request: Request) -> bool:
    """Whether the request comes from somebody, whatever that is good for."""
    response = await server.assembly.application.application(request)
    assert isinstance(response.body, bytes)
    assert response.status in (200, 401, 403), response.body
    return response.status != 401 and b"system:anonymous" not in response.body


async def test_no_changed_credential_gets_in(autojump_clock: MockClock) -> None:
    chance = random.Random(20261121)
    async with open_server(namespaces=("default", "kube-system"), other=PLAN) as server:
        tokens = await good_tokens(server)
        for token in tokens:
            assert await got_in(server, shown(chance, token))
        for number in range(TOKENS):
            good = tokens[number % len(tokens)]
            letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
            if number % 10 == 9:
                token = bytes(chance.choices(letters, k=chance.randrange(1, 200))).decode()
            else:
                token = changed(chance, good.encode(), letters).decode("latin-1")
            if token.strip() not in tokens and token.split(" ")[0] not in tokens:
                assert not await got_in(server, shown(chance, token)), token
        for token in [each for good in tokens[:2] for each in signed_by_nobody(good)]:
            assert not await got_in(server, shown(chance, token)), token
        front, client = PROXIES.client("front"), CLIENT_CA.client("jane", "system:masters")
        for der in (front, client):
            assert await got_in(server, Request.of("GET", "/api", headers=TOLD, peer_certificate=der))
        for number in range(CERTIFICATES):
            good_der = (front, client)[number % 2]
            der = changed(chance, good_der, None)
            if signed_part(good_der) in der:
                continue  # another way to write the same signature
            request = Request.of("GET", "/api", headers=TOLD, peer_certificate=der)
            assert not await got_in(server, request), der.hex()


async def test_no_answer_tells_what_was_wrong(autojump_clock: MockClock) -> None:
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
        told = set()
        for each in wrong:
            answer = await server.ask("GET", "/api/v1/namespaces", **each)
            headers = [pair for pair in answer.headers if pair[0] not in ("audit-id", "date")]
            told.add((answer.status, answer.body, tuple(headers)))
        assert len(told) == 1
        assert next(iter(told))[0] == 401
