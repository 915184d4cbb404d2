"""A real server on a TLS socket, and clients that can misbehave, for the tests of the wire.

`wire` starts a server for an application. Its clients speak bytes, HTTP/1.1 (h11) or HTTP/2 (h2). No test sleeps: each
waits for an event or for bytes, for at most PATIENCE.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
import h11
import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubechronicle.http.messages import Application, Request, Response
from kubechronicle.http.wire.listener import Server, serve
from kubechronicle.http.wire.serve_config import ServeConfig, ServeLimits
from kubechronicle.http.wire.tls_context import NamedCertificate, TLSOptions

PATIENCE = 60.0


class Authority:
    """A certificate authority that writes its certificates into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._build(self.name, self.key, ca=True, usage=None, days=30)
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def _build(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool, usage: Any, days: int
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        start, end = sorted((now - datetime.timedelta(days=2), now + datetime.timedelta(days=days)))
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, name: str, *, client: bool, days: int = 30) -> tuple[Path, Path]:
        """Return (certificate file, key file). Negative days: expired since yesterday."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        certificate = self._build(subject, key, ca=False, usage=usage, days=days)
        paths = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return paths


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Http1Client:
    """HTTP/1.1 over a TLS stream, one request after another."""

    def __init__(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream
        self.h11 = h11.Connection(h11.CLIENT)

    async def send(self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        fields = {"host": "localhost", **(headers or {})}
        if body and "transfer-encoding" not in fields:
            fields.setdefault("content-length", str(len(body)))
        encoded = [(name, value.encode()) for name, value in fields.items()]
        data = self.h11.send(h11.Request(method=method, target=target, headers=encoded)) or b""
        if body:
            data += self.h11.send(h11.Data(data=body)) or b""
        data += self.h11.send(h11.EndOfMessage()) or b""
        await self.stream.send_all(data)

    async def event(self) -> Any:
        while True:
            event = self.h11.next_event()
            if event is not h11.NEED_DATA:
                return event
            self.h11.receive_data(bytes(await self.stream.receive_some()))

    async def answer(self) -> Answer:
        with trio.fail_after(PATIENCE):
            head = await self.event()
            while isinstance(head, h11.InformationalResponse):
                head = await self.event()
            assert isinstance(head, h11.Response), head
            body = b""
            while not isinstance(event := await self.event(), h11.EndOfMessage):
                body += bytes(event.data)
            if self.h11.our_state is h11.DONE and self.h11.their_state is h11.DONE:
                self.h11.start_next_cycle()
            headers = {name.decode(): value.decode() for name, value in head.headers}
            return Answer(head.status_code, headers, body)

    async def ask(self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        await self.send(method, target, body, headers)
        return await self.answer()


class Http2Client:
    """HTTP/2 over a TLS stream; `events` reads received events."""

    def __init__(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.credit = True  # credit received bytes to the server

    async def flush(self) -> None:
        await self.stream.send_all(self.h2.data_to_send())

    async def send(self, method: str, path: str, *, end: bool = True, headers: dict[str, str] | None = None) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        fields = [(":method", method), (":path", path), (":scheme", "https"), (":authority", "localhost")]
        fields += (headers or {}).items()
        self.h2.send_headers(stream_id, fields, end_stream=end)
        await self.flush()
        return stream_id

    async def events(self) -> list[Any]:
        with trio.fail_after(PATIENCE):
            data = bytes(await self.stream.receive_some())
        if not data:
            return [None]
        events = self.h2.receive_data(data)
        for event in events:
            if isinstance(event, h2.events.DataReceived) and self.credit and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        await self.flush()
        return events

    async def until(self, wanted: Callable[[Any], bool]) -> list[Any]:
        """Return all events up to the batch with a wanted one; None is the end of the connection."""
        seen: list[Any] = []
        while not any(wanted(event) for event in seen):
            assert None not in seen, seen
            seen += await self.events()
        return seen

    async def answer(self, stream_id: int) -> Answer:
        answers = await self.answers({stream_id})
        return answers[stream_id]

    async def answers(self, streams: set[int]) -> dict[int, Answer]:
        heads: dict[int, dict[str, str]] = {}
        bodies = dict.fromkeys(streams, b"")
        left = set(streams)
        while left:
            for event in await self.events():
                assert event is not None, "connection ended"
                if isinstance(event, h2.events.ResponseReceived):
                    heads[event.stream_id] = {str(name): str(value) for name, value in event.headers}
                elif isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] += event.data
                elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                    left.discard(event.stream_id)
        return {key: Answer(int(heads[key][":status"]), heads[key], bodies[key]) for key in streams}


class Wire:
    """A served application and its clients."""

    def __init__(self, server: Server, authority: Authority) -> None:
        self.server = server
        self.authority = authority

    def context(self, alpn: str = "http/1.1", certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.file))
        context.set_alpn_protocols([alpn])
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context

    async def connect(
        self, alpn: str = "http/1.1", certificate: tuple[Path, Path] | None = None
    ) -> trio.SSLStream[trio.SocketStream]:
        with trio.fail_after(PATIENCE):
            tcp = await trio.open_tcp_stream("127.0.0.1", self.server.port)
            context = self.context(alpn, certificate)
            stream = trio.SSLStream(tcp, context, server_hostname="localhost", https_compatible=True)
            await stream.do_handshake()
            return stream

    async def http1(self, certificate: tuple[Path, Path] | None = None) -> Http1Client:
        return Http1Client(await self.connect(certificate=certificate))

    async def http2(self) -> Http2Client:
        client = Http2Client(await self.connect("h2"))
        await client.flush()
        return client

    async def say(self, data: bytes) -> bytes:
        """Send bytes on a new HTTP/1.1 connection, and return all bytes until the server ends it."""
        stream = await self.connect()
        await stream.send_all(data)
        return await self.rest(stream)

    async def rest(self, stream: trio.SSLStream[trio.SocketStream]) -> bytes:
        received = b""
        with trio.fail_after(PATIENCE):
            try:
                while piece := await stream.receive_some():
                    received += piece
            except trio.BrokenResourceError:
                pass
        return received

    async def check_alive(self) -> None:
        """Check that the server still answers, over both protocols."""
        http1 = await self.http1()
        assert (await http1.ask("GET", "/alive")).status == 200
        http2 = await self.http2()
        assert (await http2.answer(await http2.send("GET", "/alive"))).status == 200
        await http1.stream.aclose()
        await http2.stream.aclose()


StartWire = Callable[..., Awaitable[Wire]]


def answering(app: Application) -> Application:
    """Add the path that `check_alive` requests."""

    async def with_alive(request: Request) -> Response:
        if request.path == "/alive":
            return Response(200, [("content-type", "text/plain")], b"ok")
        return await app(request)

    return with_alive


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"), "ca")


@pytest.fixture(scope="session")
def server_files(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("localhost", client=False)


@pytest.fixture
def wire(nursery: trio.Nursery, authority: Authority, server_files: tuple[Path, Path]) -> StartWire:
    """`await wire(app, **limits)` starts a server that ends with the test. ``client_cas``: files with authorities of
    client certificates; by default that of ``authority``."""

    async def start(
        app: Application,
        *,
        client_cas: Sequence[Path] | None = None,
        named: tuple[NamedCertificate, ...] = (),
        options: TLSOptions | None = None,
        **limits: Any,
    ) -> Wire:
        config = ServeConfig(
            tls_cert_file=str(server_files[0]),
            tls_private_key_file=str(server_files[1]),
            client_ca_files=tuple(map(str, client_cas if client_cas is not None else [authority.file])),
            named_certificates=named,
            tls_options=options or TLSOptions(),
            limits=ServeLimits(**{"reap_interval": 0.02, **limits}),
        )
        server: Server = await nursery.start(partial(serve, answering(app), config))
        return Wire(server, authority)

    return start
