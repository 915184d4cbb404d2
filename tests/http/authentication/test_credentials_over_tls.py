"""Authentication over real TLS: certificates, the authenticating proxy, tokens on WebSockets, changed authorities.

Also that no credential reaches the logs.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio_websocket
from certificates import CA, CN, O, Subject, subject_of
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier
from in_process import ADMIN, USERS, InProcess, open_server

from kubechronicle.http.authentication import authorities as authorities_module
from kubechronicle.http.authentication.authorities import Authorities
from kubechronicle.http.authentication.chain import Anonymous, StaticTokens
from kubechronicle.http.authentication.credentials import UID, AuthenticatingProxy, ClientCertificates, ProxyHeaders
from kubechronicle.http.authentication.user import User
from kubechronicle.http.messages import Headers, Request
from kubechronicle.http.wire import tls_context
from kubechronicle.ops.klog import set_up

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELF_REVIEW = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
JSON = {"content-type": "application/json"}
SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."
PROXY = ProxyHeaders(
    username=("x-remote-user", "x-forwarded-user"),
    uid=("x-remote-uid",),
    group=("x-remote-group", "x-groups"),
    extra_prefix=("x-remote-extra-", "x-named-"),
    allowed_names=("front", "second"),
)


@dataclass
class Gate:
    """A server that trusts two authorities, each for one purpose, and clients for it."""

    server: InProcess
    served: Any
    folder: Path
    clients: CA
    proxies: CA
    count: int = 0

    def files(self, ca: CA, *subject: Subject, **options: Any) -> tuple[Path, Path]:
        self.count += 1
        return ca.files(self.folder, f"client{self.count}", *subject, **options)

    async def user(self, certificate: tuple[Path, Path] | None = None, **headers: str) -> Any:
        """Return the user of a new connection by a SelfSubjectReview, or the status code."""
        client = await self.served.http1(certificate)
        return await user_or_status(client, **headers)

    def trust(self, ca: CA, *authorities: CA) -> None:
        """Replace the authorities in the file of these."""
        file = self.folder / f"{'clients' if ca is self.clients else 'proxies'}.ca"
        file.with_suffix(".new").write_bytes(b"".join(each.pem for each in authorities))
        os.replace(file.with_suffix(".new"), file)


async def user_or_status(client: Any, **headers: str) -> Any:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await client.ask("POST", REVIEW, SELF_REVIEW, {**JSON, **fields})
    return json.loads(answer.body)["status"]["userInfo"] if answer.status == 201 else answer.status


Open = Callable[..., Any]


@pytest.fixture
def gate(wire: Any, tmp_path: Path) -> Open:
    @asynccontextmanager
    async def start(**other: Any) -> AsyncIterator[Gate]:
        clients, proxies = CA("clients"), CA("proxies")
        files = [tmp_path / "clients.ca", tmp_path / "proxies.ca"]
        for ca, file in zip((clients, proxies), files, strict=True):
            file.write_bytes(ca.pem)
        plan = {
            "authenticators": [
                AuthenticatingProxy(Authorities([files[1]]).current, PROXY),
                ClientCertificates(Authorities([files[0]]).current),
            ],
            "proxy_headers": PROXY,
            **other,
        }
        async with open_server(loops=True, other=plan) as server:
            served = await wire(server.assembly.application.application, client_cas=files)
            yield Gate(server, served, tmp_path, clients, proxies)

    return start


# -- client certificates --------------------------------------------------------------------------------------------


async def test_the_user_of_a_client_certificate(gate: Open) -> None:
    async with gate() as at:
        user = await at.user(at.files(at.clients, *subject_of("jane", "ops", "dev"), (UID, "u-1")))
        extra = user.pop("extra")["authentication.kubernetes.io/credential-id"]
        assert user == {"username": "jane", "uid": "u-1", "groups": ["ops", "dev", "system:authenticated"]}
        assert extra[0].startswith("X509SHA256=")
        assert len(extra[0]) == 75
        middle = CA("middle", parent=at.clients)
        assert (await at.user(at.files(middle, (CN, "joe"), chain=[middle])))["username"] == "joe"


async def test_certificates_that_authenticate_nobody_are_401_unless_a_token_comes_with_them(gate: Open) -> None:
    async with gate() as at:
        stranger = CA("clients")
        late = CA("late", parent=at.clients, days=-0.5)
        unknown = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), b"\x05\x00")
        for files in (
            at.files(stranger, (CN, "jane")),
            at.files(stranger, (CN, "front")),
            at.files(at.clients, (CN, "jane"), usage=[ExtendedKeyUsageOID.SERVER_AUTH]),
            at.files(at.clients, (CN, "jane"), extensions=[(unknown, True)]),
            at.files(at.clients, (CN, "jane"), start=-2, end=-1),
            at.files(at.clients, (CN, "jane"), start=1, end=2),
            at.files(at.proxies, (CN, "front"), start=-2, end=-1),
            at.files(late, (CN, "jane"), chain=[late]),
            at.files(at.clients, (O, "system:masters")),
            at.files(at.clients, (CN, "jane"), (UID, "1"), (UID, "2")),
        ):
            assert await at.user(files) == 401
            assert (await at.user(files, authorization=f"Bearer {ADMIN}"))["username"] == "admin"
            assert await at.user(files, **PROXY_HEADERS) == 401
        assert at.served.server.statistics().handshakes_failed == 0


async def test_authorities_may_change_under_an_open_connection(gate: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorities_module, "LOOK_INTERVAL", 0.0)
    monkeypatch.setattr(tls_context, "RELOAD_INTERVAL", 0.0)
    async with gate() as at:
        new = CA("clients")
        old_files, new_files = at.files(at.clients, (CN, "jane")), at.files(new, (CN, "joe"))
        connection = await at.served.http1(old_files)
        assert (await user_or_status(connection))["username"] == "jane"
        at.trust(at.clients, at.clients, new)
        assert (await user_or_status(connection))["username"] == "jane"
        assert (await at.user(new_files))["username"] == "joe"
        at.trust(at.clients, new)
        assert await user_or_status(connection) == 401
        assert (await user_or_status(connection, authorization=f"Bearer {ADMIN}"))["username"] == "admin"
        assert (await at.user(new_files))["username"] == "joe"
        assert await at.user(old_files) == 401
        at.trust(at.clients, at.clients)
        assert (await user_or_status(connection))["username"] == "jane"


# -- the authenticating proxy ---------------------------------------------------------------------------------------

PROXY_HEADERS = {"x_remote_user": "mary", "x_remote_uid": "7", "x_remote_group": "ops", "x_remote_extra_scopes": "view"}


async def test_a_proxy_names_the_user(gate: Open) -> None:
    async with gate() as at:
        front = at.files(at.proxies, (CN, "front"))
        assert await at.user(front, **PROXY_HEADERS) == {
            "username": "mary",
            "uid": "7",
            "groups": ["ops", "system:authenticated"],
            "extra": {"scopes": ["view"]},
        }
        user = await at.user(
            at.files(at.proxies, (CN, "second")),
            x_forwarded_user="käthe",
            x_groups="a",
            x_remote_group="b",
            x_named_Example_dot_com_2fkey="1",
            **{"x_named_a%2Fb": "2"},
        )
        assert (user["username"], user["groups"]) == ("käthe", ["b", "a", "system:authenticated"])
        assert user["extra"] == {"a/b": ["2"], "example-dot-com-2fkey": ["1"]}
        assert await at.user(front) == 401  # it names no user, and is no client itself
        assert (await at.user(front, authorization=f"Bearer {ADMIN}"))["username"] == "admin"


async def test_other_clients_cannot_name_a_user(gate: Open) -> None:
    async with gate() as at:
        jane = await at.user(at.files(at.clients, (CN, "jane")), **PROXY_HEADERS)
        assert (jane["username"], jane["groups"]) == ("jane", ["system:authenticated"])
        assert (await at.user(at.files(at.clients, (CN, "front")), **PROXY_HEADERS))["username"] == "front"
        assert await at.user(at.files(at.proxies, (CN, "jane")), **PROXY_HEADERS) == 401
        assert await at.user(**PROXY_HEADERS) == 403
        assert (await at.user(authorization=f"Bearer {ADMIN}", **PROXY_HEADERS))["username"] == "admin"
        assert await at.user(authorization="Bearer wrong", **PROXY_HEADERS) == 401


async def test_proxy_headers_are_removed(gate: Open) -> None:
    seen: list[Request] = []

    async with gate() as at:
        inner = at.server.assembly.application.application
        at.served.server.app = lambda request: seen.append(request) or inner(request)
        await at.user(
            at.files(at.proxies, (CN, "front")), authorization=f"Bearer {ADMIN}", x_groups="a", **PROXY_HEADERS
        )
        await at.user(authorization=f"Bearer {ADMIN}", x_forwarded_user="x", x_named_a="b", **PROXY_HEADERS)
        assert len(seen) == 2
        for request in seen:
            names = [name for name, _ in request.headers]
            assert not [name for name in names if name.startswith(("x-", "authorization"))], names
            assert "content-type" in names
            assert "authorization" not in request.headers


# -- no credential, and tokens on WebSockets ------------------------------------------------------------------------


async def test_anonymous_requests_are_limited_to_paths(gate: Open) -> None:
    async with gate(anonymous=Anonymous(enabled=False)) as at:
        client = await at.served.http1()
        for path in ("/healthz", "/api"):
            assert (await client.ask("GET", path)).status == 401
        assert (await client.ask("GET", "/api", b"", {"authorization": f"Bearer {ADMIN}"})).status == 200
    async with gate(anonymous=Anonymous(paths=["/livez", "/api"])) as at:
        client = await at.served.http1()
        statuses = {
            path: (await client.ask("GET", path)).status for path in ("/livez", "/api", "/livez/ping", "/healthz")
        }
        assert statuses == {"/livez": 200, "/api": 403, "/livez/ping": 401, "/healthz": 401}
        metrics = {result: await at.server.metric("authentication_attempts", result=result) for result in ("failure",)}
        assert metrics == {"failure": 2}


async def test_a_bearer_field_without_a_token_is_no_credential(gate: Open) -> None:
    async with gate() as at:
        client = await at.served.http1()
        answer = await client.ask("GET", "/livez", b"", {"authorization": "Bearer  two-spaces"})
        assert answer.status == 200
        assert "contains extra space before the bearer token, and is ignored" in answer.headers["warning"]
        for field, status in (("Bearer", 200), ("Bearer x", 401), ("Basic eDp5", 200), ("bEARER x y", 401)):
            assert (await client.ask("GET", "/livez", b"", {"authorization": field})).status == status, field


def offered(token: bytes) -> str:
    return SUBPROTOCOL + base64.urlsafe_b64encode(token).decode().rstrip("=")


WATCH = "/api/v1/namespaces?watch=1&timeoutSeconds=1"


async def test_a_websocket_may_have_its_token_in_a_subprotocol(gate: Open) -> None:
    async with (
        gate() as at,
        trio_websocket.open_websocket(
            "localhost",
            at.served.server.port,
            WATCH,
            use_ssl=at.served.context(),
            subprotocols=[offered(ADMIN.encode()), "base64.binary.k8s.io", "other"],
        ) as client,
    ):
        assert client.subprotocol == "base64.binary.k8s.io"
        event = json.loads(await client.get_message())
        assert (event["type"], event["object"]["kind"]) == ("ADDED", "Namespace")


def test_the_other_subprotocols_stay_for_the_servers_behind() -> None:
    headers = Headers([("a", "1"), ("sec-websocket-protocol", "secret, x"), ("sec-websocket-protocol", "y")])
    copy = headers.copy()
    headers.replace("sec-websocket-protocol", "x,y")
    assert list(headers) == [("a", "1"), ("sec-websocket-protocol", "x,y")]
    assert copy.get_all("sec-websocket-protocol") == ["secret, x", "y"]


@pytest.mark.parametrize(
    ("protocols", "status"),
    [
        ([offered(b"wrong"), "x"], 401),
        ([offered(ADMIN.encode())], 401),
        ([offered(ADMIN.encode()), offered(ADMIN.encode()), "x"], 401),
        ([offered(ADMIN.encode()) + "=", "x"], 401),
        ([SUBPROTOCOL + "a", "x"], 401),
        ([offered(b"\xff\xfe"), "x"], 401),
        ([SUBPROTOCOL, "x"], 403),
        (["x"], 403),
    ],
    ids=["wrong", "alone", "twice", "padded", "cut off", "no text", "empty", "none"],
)
async def test_wrong_tokens_on_websockets(gate: Open, protocols: list[str], status: int) -> None:
    async with gate() as at:
        with pytest.raises(trio_websocket.ConnectionRejected) as caught:
            async with trio_websocket.open_websocket(
                "localhost", at.served.server.port, WATCH, use_ssl=at.served.context(), subprotocols=protocols
            ):
                pass
        assert caught.value.status_code == status


# -- logs -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def noisy() -> Any:
    """Return all log output at the highest verbosity, as the command line sets it up."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    set_up(verbosity=10, stream=stream)
    yield stream
    root.handlers[:], _ = before
    root.setLevel(before[1])


async def test_no_credential_reaches_the_logs_or_the_log(gate: Open, noisy: io.StringIO) -> None:
    """Valid and wrong credentials over HTTP/1.1, HTTP/2 and WebSocket, in headers, queries and bodies."""
    secret = "s3cr3t-that-nobody-may-see"
    listed = {**USERS, hashlib.sha256(secret.encode()).digest(): User(name="root", groups=("system:masters",))}
    async with gate(static_tokens=[StaticTokens(listed)]) as at:
        http1 = await at.served.http1()
        bearer = {"authorization": f"Bearer {secret}", **JSON}
        held = {"metadata": {"generateName": "held-"}, "stringData": {"password": secret}}
        secrets = "/api/v1/namespaces/default/secrets"
        for target in (f"{secrets}?access_token={secret}", f"{secrets}?access%5Ftoken={secret}&dryRun=All"):
            assert (await http1.ask("POST", target, json.dumps(held).encode(), bearer)).status == 201
        for body in (b"{" + secret.encode(), json.dumps({**held, "data": {"x": secret}}).encode()):
            assert (await http1.ask("POST", secrets, body, bearer)).status in (400, 422)
        for field in (f"Bearer {secret}x", f"Basic {secret}", f"Bearer  {secret}", f"{secret}"):
            await http1.ask("GET", f"/api?token={secret}", b"", {"authorization": field})
        spec = {"token": f"{secret}.{secret}.x"}
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        answer = await http1.ask("POST", path, json.dumps(review).encode(), bearer)
        assert secret not in json.loads(answer.body)["status"]["error"]
        for path in ("/api", "/nowhere", "/metrics"):
            for headers in (bearer, {"authorization": f"Bearer wrong-{secret}"}):
                http2 = await at.served.http2()  # an answer to an unknown user ends the connection
                answer = await http2.answer(await http2.send("GET", path, headers=headers))
                assert secret.encode() not in answer.body
        for token in (secret, f"{secret}x"):
            with contextlib.suppress(trio_websocket.ConnectionRejected):
                async with trio_websocket.open_websocket(
                    "localhost",
                    at.served.server.port,
                    WATCH,
                    use_ssl=at.served.context(),
                    subprotocols=[offered(token.encode()), "x"],
                ) as client:
                    await client.get_message()
        at.served.server.app = failing
        http1 = await at.served.http1()
        assert (await http1.ask("GET", f"/api?token={secret}", b"", bearer)).status == 500
        whos = list(map(repr, at.server.log.store.who.values()))
        assert any("access_token=REDACTED" in who and "root" in who for who in whos)
    spoken = noisy.getvalue() + "".join(whos)
    assert len(noisy.getvalue()) > 500
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    for trace in (secret, encoded[:-1], offered(secret.encode())):
        assert trace not in spoken


async def failing(request: Request) -> Any:
    raise RuntimeError(f"{request!r} {request.headers!r}")
