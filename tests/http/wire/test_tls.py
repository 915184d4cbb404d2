"""The TLS stream and the server's context: certificates accepted, rejected, rotated; bytes in order under load."""

from __future__ import annotations

import ctypes
import shutil
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from cryptography import x509

from kubechronicle.http.messages import Request, Response
from kubechronicle.http.wire import openssl, tls, tls_context


async def client_identity(request: Request) -> Response:
    der = request.peer_certificate
    name = x509.load_der_x509_certificate(der).subject.rfc4514_string() if der else "nobody"
    return Response(200, [], name.encode())


async def test_client_certificate_is_seen(wire: Any, authority: Any) -> None:
    served = await wire(client_identity)
    certificate = authority.issue("alice", client=True)
    assert (await (await served.http1(certificate)).ask("GET", "/")).body == b"CN=alice"
    assert (await (await served.http1()).ask("GET", "/")).body == b"nobody"


async def test_dates_are_for_the_authenticator(wire: Any, authority: Any) -> None:
    served = await wire(client_identity)
    certificate = authority.issue("late", client=True, days=-1)
    assert (await (await served.http1(certificate)).ask("GET", "/")).body == b"CN=late"


def untrusted(authority: Any, directory: Path) -> list[Any]:
    """Return a certificate of an unknown authority, and one that is not for clients."""
    return [
        type(authority)(directory, "stranger").issue("mallory", client=True),
        authority.issue("mallory", client=False),
    ]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_untrusted_certificates_are_for_the_authenticator(
    wire: Any, authority: Any, tmp_path: Path, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await wire(client_identity)
    monkeypatch.setattr(served, "context", lambda *given: limited(type(served).context(served, *given)))

    def limited(context: ssl.SSLContext) -> ssl.SSLContext:
        context.maximum_version = version
        return context

    for certificate in untrusted(authority, tmp_path):
        client = await served.http1(certificate)
        assert (await client.ask("GET", "/")).body == b"CN=mallory"
    assert served.server.statistics().handshakes_failed == 0


async def test_where_openssl_cannot_be_called_the_handshake_fails(
    wire: Any, authority: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openssl, "_library", lambda: None)
    served = await wire(client_identity)
    for certificate in untrusted(authority, tmp_path):
        client = await served.http1(certificate)  # TLS 1.3: the client's handshake ends before the alert arrives
        with pytest.raises(trio.BrokenResourceError):
            await client.ask("GET", "/")
    assert served.server.statistics().handshakes_failed == 2
    await served.check_alive()


def test_the_context_of_this_interpreter_is_known() -> None:
    library = openssl._library()
    assert library is not None
    library.SSL_CTX_get_options.argtypes, library.SSL_CTX_get_options.restype = [ctypes.c_void_p], ctypes.c_uint64
    context = ssl.create_default_context()
    for option in (ssl.OP_NO_TICKET, ssl.OP_NO_COMPRESSION):
        context.options |= option
        assert library.SSL_CTX_get_options(openssl._pointer(context)) == context.options


async def test_the_groups_of_the_key_exchange(authority: Any, wire: Any) -> None:
    """A client that has other groups alone is refused."""
    served = await wire(client_identity, options=tls_context.TLSOptions(groups=("P-384",)))
    for group, works in (("P-384", True), ("X25519", False)):
        context = served.context("http/1.1")
        assert openssl.set_groups(context, [group]) == ""
        tcp = await trio.open_tcp_stream("127.0.0.1", served.server.port)
        stream = trio.SSLStream(tcp, context, server_hostname="localhost")
        if works:
            await stream.do_handshake()
        else:
            with pytest.raises(trio.BrokenResourceError):
                await stream.do_handshake()
    assert openssl.set_groups(context, ["P-256", "X999"]).endswith(" has no X999")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("alpn", ["h2", "http/1.1"])
async def test_versions_and_alpn(wire: Any, version: ssl.TLSVersion, alpn: str) -> None:
    served = await wire(client_identity)
    context = served.context(alpn)
    context.minimum_version = context.maximum_version = version
    tcp = await trio.open_tcp_stream("127.0.0.1", served.server.port)
    stream = trio.SSLStream(tcp, context, server_hostname="localhost")
    await stream.do_handshake()
    assert stream.selected_alpn_protocol() == alpn


async def client_chain(request: Request) -> Response:
    identity = await client_identity(request)
    return Response(200, [], b"%b and %d more" % (bytes(identity.body), len(request.peer_intermediates)))


async def test_a_resumed_session_has_the_whole_chain(wire: Any, authority: Any) -> None:
    """No session of TLS 1.3 is resumed. OpenSSL may resume one of TLS 1.2, on the same context alone."""
    served = await wire(client_chain)
    certificate, key = authority.issue("alice", client=True)
    certificate.write_bytes(certificate.read_bytes() + authority.file.read_bytes())
    context = served.context(certificate=(certificate, key))

    def ask(session: ssl.SSLSession | None) -> tuple[bytes, bool, ssl.SSLSession | None]:
        tcp = socket.create_connection(("127.0.0.1", served.server.port))
        with tcp, context.wrap_socket(tcp, server_hostname="localhost", session=session) as stream:
            stream.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            answer = b""
            while not answer.endswith(b"more"):
                answer += stream.recv(1000)
            found = answer.rpartition(b"\r\n")[2], bool(stream.session_reused), stream.session
            stream.unwrap()  # OpenSSL forgets the session of a connection that ends without
            return found

    for version, resumed in ((ssl.TLSVersion.TLSv1_3, False), (ssl.TLSVersion.TLSv1_2, True)):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, version
        body, _, session = await trio.to_thread.run_sync(ask, None)
        assert body == b"CN=alice and 1 more"
        usable = session if session is not None and session.id else None
        body, reused, _ = await trio.to_thread.run_sync(ask, usable)
        assert (body, reused) == (b"CN=alice and 1 more", resumed)


def copied(files: tuple[Path, Path], to: Path) -> tls_context.TLSFiles:
    shutil.copy(files[0], to / "tls.crt")
    shutil.copy(files[1], to / "tls.key")
    return tls_context.TLSFiles(str(to / "tls.crt"), str(to / "tls.key"))


def test_context_follows_its_files(authority: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_context, "RELOAD_INTERVAL", 0.0)
    files = copied(authority.issue("first", client=False), tmp_path)
    reloading = tls_context.ReloadingContext(files)
    before = reloading.current()
    assert reloading.current() is before
    second = authority.issue("second", client=False)
    shutil.copy(second[0], files.certificate)  # half of a pair: the former one stays
    assert reloading.current() is before
    shutil.copy(second[1], files.private_key)
    after = reloading.current()
    assert after is not before
    Path(files.certificate).unlink()
    assert reloading.current() is after


async def test_new_connections_get_the_new_certificate(
    wire: Any, server_files: tuple[Path, Path], authority: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await wire(client_identity)
    monkeypatch.setattr(tls_context, "RELOAD_INTERVAL", 0.0)

    async def serial() -> int:
        stream = await served.connect()
        der = stream.getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(der).serial_number

    before = await serial()
    old = await served.http1()
    await old.ask("GET", "/")
    authority.issue("localhost", client=False)  # writes the same files
    assert await serial() != before
    assert (await old.ask("GET", "/")).status == 200


def test_unusable_files_raise(tmp_path: Path, server_files: tuple[Path, Path]) -> None:
    with pytest.raises(FileNotFoundError):
        tls_context.ReloadingContext(tls_context.TLSFiles(str(tmp_path / "none"), str(tmp_path / "none")))
    (tmp_path / "bad").write_text("not PEM")
    with pytest.raises(ssl.SSLError):
        tls_context.ReloadingContext(tls_context.TLSFiles(str(tmp_path / "bad"), str(server_files[1])))


# --- the stream ---


async def stream_pair(files: tuple[Path, Path], authority: Any) -> tuple[tls.TLSStream, trio.SSLStream[Any]]:
    """Return a server's TLSStream and a client's trio.SSLStream, connected, after the handshake."""
    context = tls_context.server_context(tls_context.TLSFiles(str(files[0]), str(files[1])))
    listener = socket.create_server(("127.0.0.1", 0))
    tcp = await trio.open_tcp_stream("127.0.0.1", listener.getsockname()[1])
    raw, _ = listener.accept()
    listener.close()
    raw.setblocking(False)
    server = tls.TLSStream.wrap(raw, context)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    client = trio.SSLStream(tcp, trusting, server_hostname="localhost", https_compatible=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.do_handshake)
        nursery.start_soon(client.do_handshake)
    return server, client


async def read(stream: Any, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = await stream.receive_some()
        assert piece
        received += piece
    return bytes(received)


async def test_large_sends_arrive_in_order_both_ways(server_files: tuple[Path, Path], authority: Any) -> None:
    server, client = await stream_pair(server_files, authority)
    data = b"".join(number.to_bytes(4, "big") for number in range(1_500_000))
    for sender, receiver in ((server, client), (client, server)):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.send_all, data)
            assert await read(receiver, len(data)) == data


async def test_send_nowait_and_the_rest(server_files: tuple[Path, Path], authority: Any) -> None:
    """An interrupted write must be repeated with the same bytes; sizes are around the cuts."""
    server, client = await stream_pair(server_files, authority)
    for size in (1, tls.RECORD, tls.WRITE - 1, tls.WRITE, tls.WRITE + 1, 20_000_003):
        data = bytes([size % 251]) * size
        sent = server.send_nowait(data)
        assert sent <= size
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.send_all, memoryview(data)[sent:])
            assert await read(client, size) == data


@pytest.mark.skipif(not hasattr(socket, "TCP_CORK"), reason="Linux only")
async def test_a_large_send_leaves_nothing_in_the_kernel(server_files: tuple[Path, Path], authority: Any) -> None:
    server, client = await stream_pair(server_files, authority)
    data = bytes(tls.WRITE + 1)
    assert server.send_nowait(data) == len(data)
    option = server.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 4)
    assert int.from_bytes(option, "little") == 0
    with trio.fail_after(30):
        assert await read(client, len(data)) == data


async def test_a_cancelled_send_leaves_the_stream_broken(server_files: tuple[Path, Path], authority: Any) -> None:
    server, _client = await stream_pair(server_files, authority)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.send_all, b"x" * 50_000_000)
            await trio.testing.wait_all_tasks_blocked()
            assert server.blocked_since is not None
            with pytest.raises(trio.BusyResourceError):
                server.send_nowait(b"y")
            scope.cancel()
    assert server.blocked_since is None
    with pytest.raises(trio.BrokenResourceError):
        await server.send_all(b"y")
    await server.aclose()


async def test_ends_and_closes(server_files: tuple[Path, Path], authority: Any) -> None:
    server, client = await stream_pair(server_files, authority)
    await client.send_all(b"last words")
    await client.aclose()
    assert await read(server, 10) == b"last words"
    assert await server.receive_some() == b""
    await server.aclose()
    await server.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await server.receive_some()
    with pytest.raises(trio.ClosedResourceError):
        await server.send_all(b"x")


async def test_closing_wakes_the_reader_and_the_sender(server_files: tuple[Path, Path], authority: Any) -> None:
    server, client = await stream_pair(server_files, authority)
    woken = []

    async def expect_closed(wait: Any, *args: Any) -> None:
        with pytest.raises(trio.ClosedResourceError):
            await wait(*args)
        woken.append(wait.__name__)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_closed, server.receive_some)
        nursery.start_soon(expect_closed, server.send_all, b"x" * 50_000_000)
        await trio.testing.wait_all_tasks_blocked()
        server.abort()
    assert sorted(woken) == ["receive_some", "send_all"]
    with pytest.raises(trio.BrokenResourceError):
        await read(client, 50_000_000)


async def test_close_notify_is_sent(server_files: tuple[Path, Path], authority: Any) -> None:
    server, client = await stream_pair(server_files, authority)
    strict = client
    strict._https_compatible = False  # an end without close_notify would raise
    await server.send_all(b"answer")
    server.send_eof_nowait()
    assert await read(strict, 6) == b"answer"
    assert await strict.receive_some() == b""
