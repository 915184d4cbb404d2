"""The TLS contexts: further certificates by name and address, versions, ciphers, protocols."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import trio
from cryptography import x509

from kubechronicle.http.messages import Request, Response
from kubechronicle.http.wire.http2 import frames
from kubechronicle.http.wire.http2.frames import DATA, GOAWAY, HEADERS, FrameReader
from kubechronicle.http.wire.tls_context import NamedCertificate, TLSOptions


async def answer(request: Request) -> Response:
    return Response(200, [], request.http_version.encode())


async def served_name(served: Any, server_name: str | None) -> str:
    """Return the common name of the certificate for a server name."""
    context = ssl.create_default_context(cafile=str(served.authority.file))
    context.check_hostname = False
    tcp = await trio.open_tcp_stream("127.0.0.1", served.server.port)
    stream = trio.SSLStream(tcp, context, server_hostname=server_name, https_compatible=True)
    await stream.do_handshake()
    certificate = x509.load_der_x509_certificate(stream.getpeercert(binary_form=True))
    await stream.aclose()
    return certificate.subject.rfc4514_string().removeprefix("CN=")


async def test_a_certificate_is_chosen_by_name(wire: Any, authority: Any) -> None:
    """A name that is given precedes one in a certificate, an exact one a wildcard, an earlier certificate a later."""
    first, second = (tuple(map(str, authority.issue(name, client=False))) for name in ("one.example", "two.example"))
    served = await wire(
        answer,
        named=(
            NamedCertificate(*first),
            NamedCertificate(*second, names=("*.example", "three.example")),
            NamedCertificate(*first, names=("three.example", "127.0.0.1")),
        ),
    )
    expected = {
        "one.example": "one.example",
        "ONE.example": "one.example",
        "any.example": "two.example",
        "three.example": "two.example",
        "deep.any.example": "localhost",
        "other.test": "localhost",
        None: "one.example",
    }
    assert {name: await served_name(served, name) for name in expected} == expected


async def test_without_http2(wire: Any) -> None:
    served = await wire(answer, options=TLSOptions(http2=False))
    stream = await served.connect("h2")
    assert stream.selected_alpn_protocol() is None
    assert (await (await served.http1()).ask("GET", "/")).body == b"1.1"


async def test_the_least_version(wire: Any) -> None:
    served = await wire(answer, options=TLSOptions(minimum=ssl.TLSVersion.TLSv1_3))
    context = served.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(trio.BrokenResourceError):
        await handshake(served, context)
    assert (await handshake(served, served.context())).version() == "TLSv1.3"


async def test_tls_1_1_if_it_is_asked_for(wire: Any) -> None:
    served = await wire(answer, options=TLSOptions(minimum=ssl.TLSVersion.TLSv1_1))
    context = served.context()
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    assert (await handshake(served, context)).version() == "TLSv1.1"


async def test_the_chosen_ciphers(wire: Any) -> None:
    served = await wire(answer, options=TLSOptions(ciphers="ECDHE-ECDSA-AES256-GCM-SHA384"))
    context = served.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert (await handshake(served, context)).cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises(trio.BrokenResourceError):
        await handshake(served, context)


async def handshake(served: Any, context: ssl.SSLContext) -> Any:
    tcp = await trio.open_tcp_stream("127.0.0.1", served.server.port)
    stream = trio.SSLStream(tcp, context, server_hostname="localhost", https_compatible=True)
    await stream.do_handshake()
    return stream


async def test_goaway(wire: Any) -> None:
    """With a chance of one, the first request is answered, and its connection ends. HTTP/1.1 has no GOAWAY."""
    served = await wire(answer, goaway_chance=1.0)
    client = await served.http2()
    await client.send("GET", "/")
    received = [kind for kind, *_ in FrameReader().feed(frames.PREFACE + await served.rest(client.stream))]
    assert [kind for kind in received if kind in (GOAWAY, HEADERS, DATA)] == [GOAWAY, HEADERS, DATA]
    http1 = await served.http1()
    assert [(await http1.ask("GET", "/")).status for _ in range(3)] == [200] * 3
