"""Who gets in over real TLS: certificates of every kind, the authenticating proxy, tokens on WebSockets, authorities
that change under an open connection; and what of all that reaches the logs."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
import trio_websocket
from certificates import CA, CN, O, Subject, subject_of
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier
from in_process import ADMIN, USERS, InProcess, open_server

from kubechronicle.http.authentication import authorities as authorities_module
from kubechronicle.http.authentication.anonymous import Anonymous
from kubechronicle.http.authentication.authorities import Authorities
from kubechronicle.http.authentication.request_header import AuthenticatingProxy, ProxyHeaders
from kubechronicle.http.authentication.token_file import StaticTokens
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authentication.x509 import UID, ClientCertificates
from kubechronicle.http.messages import Request
from kubechronicle.http.wire import tls
from kubechronicle.ops.klog import set_up

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
WHO = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
JSON = {"content-type": "application/json"}
SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."
PROXY = ProxyHeaders(
    username=("x-remote-user", "x-forwarded-user"),
    uid=("x-remote-uid",),
    group=("x-remote-group", "x-groups"),
    extra_prefix=("x-remote-extra-", "x-told-"),
    allowed_names=("front", "second"),
)


@dataclass
class Gate:
    """A server that believes two authorities, each for its purpose, and ways to knock."""

    server: InProcess
    served: Any
    folder: Path
    clients: CA
    proxies: CA
    count: int = 0

    def files(self, ca: CA, *subject: Subject, **options: Any) -> tuple[Path, Path]:
        self.count += 1
        return ca.files(self.folder, f"client{self.count}", *subject, **options)

    async def who(self, certificate: tuple[Path, Path] | None = None, **headers: str) -> Any:
        """The answer to a SelfSubjectReview over a new connection: the user's information, or the status code."""
        client = await self.served.http1(certificate)
        return await asked(client, **headers)

    def trust(self, ca: CA, *authorities: CA) -> None:
        """Put other authorities into the file of these."""
        file = self.folder / f"{'clients' if ca is self.clients else 'proxies'}.ca"
        file.with_suffix(".new").write_bytes(b"".join(each.pem for each in authorities))
        os.replace(file.with_suffix(".new"), file)


async def asked(client: Any, **headers: str) -> Any:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await client.ask("POST", REVIEW, WHO, {**JSON, **fields})
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


async def test_whom_a_client_certificate_names(gate: Open) -> None:
    async with gate() as at:
        found = await at.who(at.files(at.clients, *subject_of("jane", "ops", "dev"), (UID, "u-1")))
        extra = found.pop("extra")["authentication.kubernetes.io/credential-id"]
        assert found == {"username": "jane", "uid": "u-1", "groups": ["ops", "dev", "system:authenticated"]}
        assert extra[0].startswith("X509SHA256=")
        assert len(extra[0]) == 75
        middle = CA("middle", parent=at.clients)
        assert (await at.who(at.files(middle, (CN, "joe"), chain=[middle])))["username"] == "joe"


async def test_certificates_that_lead_nowhere_fail_the_handshake(gate: Open) -> None:
    async with gate() as at:
        stranger = CA("clients")
        for files in (
            at.files(stranger, (CN, "jane")),
            at.files(at.clients, (CN, "jane"), usage=[ExtendedKeyUsageOID.SERVER_AUTH]),
            at.files(stranger, (CN, "front")),
        ):
            with pytest.raises((trio.BrokenResourceError, ssl.SSLError)):
                await at.who(files)
        assert at.served.server.statistics().handshakes_failed == 3


async def test_certificates_out_of_their_time_or_of_nobody_are_401(gate: Open) -> None:
    async with gate() as at:
        late = CA("late", parent=at.clients, days=-0.5)
        unknown = x509.UnrecognizedExtension(ObjectIdentifier("1.2.3.4"), b"\x05\x00")
        for files in (
            at.files(at.clients, (CN, "jane"), start=-2, end=-1),
            at.files(at.clients, (CN, "jane"), start=1, end=2),
            at.files(at.proxies, (CN, "front"), start=-2, end=-1),
            at.files(late, (CN, "jane"), chain=[late]),
            at.files(at.clients, (O, "system:masters")),
            at.files(at.clients, (CN, "jane"), (UID, "1"), (UID, "2")),
        ):
            assert await at.who(files) == 401
            assert (await at.who(files, authorization=f"Bearer {ADMIN}"))["username"] == "admin"
        with pytest.raises((trio.BrokenResourceError, ssl.SSLError)):
            await at.who(at.files(at.clients, (CN, "jane"), extensions=[(unknown, True)]))


async def test_authorities_may_change_under_an_open_connection(gate: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorities_module, "LOOK_INTERVAL", 0.0)
    monkeypatch.setattr(tls, "RELOAD_INTERVAL", 0.0)
    async with gate() as at:
        new = CA("clients")
        old_files, new_files = at.files(at.clients, (CN, "jane")), at.files(new, (CN, "joe"))
        connection = await at.served.http1(old_files)
        assert (await asked(connection))["username"] == "jane"
        at.trust(at.clients, at.clients, new)
        assert (await asked(connection))["username"] == "jane"
        assert (await at.who(new_files))["username"] == "joe"
        at.trust(at.clients, new)
        assert await asked(connection) == 401
        assert (await asked(connection, authorization=f"Bearer {ADMIN}"))["username"] == "admin"
        assert (await at.who(new_files))["username"] == "joe"
        with pytest.raises((trio.BrokenResourceError, ssl.SSLError)):
            await at.who(old_files)
        at.trust(at.clients, at.clients)
        assert (await asked(connection))["username"] == "jane"


# -- the authenticating proxy ---------------------------------------------------------------------------------------

TOLD = {"x_remote_user": "mary", "x_remote_uid": "7", "x_remote_group": "ops", "x_remote_extra_scopes": "view"}


async def test_a_proxy_tells_who_asks(gate: Open) -> None:
    async with gate() as at:
        front = at.files(at.proxies, (CN, "front"))
        assert await at.who(front, **TOLD) == {
            "username": "mary",
            "uid": "7",
            "groups": ["ops", "system:authenticated"],
            "extra": {"scopes": ["view"]},
        }
        found = await at.who(
            at.files(at.proxies, (CN, "second")),
            x_forwarded_user="käthe",
            x_groups="a",
            x_remote_group="b",
            x_told_Example_dot_com_2fkey="1",
            **{"x_told_a%2Fb": "2"},
        )
        assert (found["username"], found["groups"]) == ("käthe", ["b", "a", "system:authenticated"])
        assert found["extra"] == {"a/b": ["2"], "example-dot-com-2fkey": ["1"]}
        assert await at.who(front) == 401  # it names nobody, and is no client itself
        assert (await at.who(front, authorization=f"Bearer {ADMIN}"))["username"] == "admin"


async def test_nobody_else_is_believed(gate: Open) -> None:
    async with gate() as at:
        jane = await at.who(at.files(at.clients, (CN, "jane")), **TOLD)
        assert (jane["username"], jane["groups"]) == ("jane", ["system:authenticated"])
        assert (await at.who(at.files(at.clients, (CN, "front")), **TOLD))["username"] == "front"
        assert await at.who(at.files(at.proxies, (CN, "jane")), **TOLD) == 401
        assert await at.who(**TOLD) == 403
        assert (await at.who(authorization=f"Bearer {ADMIN}", **TOLD))["username"] == "admin"
        assert await at.who(authorization="Bearer wrong", **TOLD) == 401


async def test_what_was_told_goes_no_further(gate: Open) -> None:
    seen: list[Request] = []

    async with gate() as at:
        inner = at.server.assembly.application.application
        at.served.server.app = lambda request: seen.append(request) or inner(request)
        await at.who(at.files(at.proxies, (CN, "front")), authorization=f"Bearer {ADMIN}", x_groups="a", **TOLD)
        await at.who(authorization=f"Bearer {ADMIN}", x_forwarded_user="x", x_told_a="b", **TOLD)
        assert len(seen) == 2
        for request in seen:
            names = [name for name, _ in request.headers]
            assert not [name for name in names if name.startswith(("x-", "authorization"))], names
            assert "content-type" in names
            assert "authorization" not in request.headers


# -- no credential, and tokens on WebSockets ------------------------------------------------------------------------


async def test_nobody_comes_in_where_nobody_may(gate: Open) -> None:
    async with gate(anonymous=Anonymous(enabled=False)) as at:
        client = await at.served.http1()
        for path in ("/healthz", "/api"):
            assert (await client.ask("GET", path)).status == 401
        assert (await client.ask("GET", "/api", b"", {"authorization": f"Bearer {ADMIN}"})).status == 200
    async with gate(anonymous=Anonymous(paths=["/livez", "/api"])) as at:
        client = await at.served.http1()
        found = {path: (await client.ask("GET", path)).status for path in ("/livez", "/api", "/livez/ping", "/healthz")}
        assert found == {"/livez": 200, "/api": 403, "/livez/ping": 401, "/healthz": 401}
        metrics = {result: await at.server.metric("authentication_attempts", result=result) for result in ("failure",)}
        assert metrics == {"failure": 2}


async def test_a_bearer_field_without_a_token_is_no_credential(gate: Open) -> None:
    async with gate() as at:
        client = await at.served.http1()
        answer = await client.ask("GET", "/livez", b"", {"authorization": "Bearer  two-spaces"})
        assert answer.status == 200
        assert "contains extra space before the bearer token, and is ignored" in answer.headers["warning"]
        for field, status in (("Bearer", 200), ("Bearer x", 401), ("Basic eDp5", 401), ("bEARER x y", 401)):
            assert (await client.ask("GET", "/livez", b"", {"authorization": field})).status == status, field


def offered(token: bytes) -> str:
    return SUBPROTOCOL + base64.urlsafe_b64encode(token).decode().rstrip("=")


WATCH = "/api/v1/namespaces?watch=1&timeoutSeconds=1"


async def test_a_websocket_may_show_its_token_in_a_subprotocol(gate: Open) -> None:
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


# -- what reaches the logs ------------------------------------------------------------------------------------------


@pytest.fixture
def noisy() -> Any:
    """Everything that is logged at the highest verbosity, as the command line sets it up."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    set_up(verbosity=10, stream=stream)
    yield stream
    root.handlers[:], _ = before
    root.setLevel(before[1])


async def test_no_credential_reaches_the_logs_or_the_log(gate: Open, noisy: io.StringIO) -> None:
    """Every way in and out that a secret could take: good and bad, HTTP/1.1, HTTP/2, WebSocket, queries, bodies."""
    secret = "s3cr3t-that-nobody-may-see"
    listed = {**USERS, hashlib.sha256(secret.encode()).digest(): User(name="root", groups=("system:masters",))}
    async with gate(static_tokens=[StaticTokens(listed)]) as at:
        http1, http2 = await at.served.http1(), await at.served.http2()
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
                found = await http2.answer(await http2.send("GET", path, headers=headers))
                assert secret.encode() not in found.body
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
