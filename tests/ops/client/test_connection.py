"""One HTTP/1.1 connection: responses in every framing, and those that cannot be read."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import cast

import pytest

from kubechronicle.ops.client.connection import Address, ArrivingResponse, Disconnected, HttpError, ServerConnection
from kubechronicle.ops.client.kubeconfig import ClusterTarget
from kubechronicle.ops.client.transport import HttpTransport
from kubechronicle.ops.errors import OperatorError

CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@contextmanager
def connected(*answers: bytes) -> Iterator[ServerConnection]:
    """Connect to a server that sends one answer per request, and then closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError), listener.accept()[0] as accepted:  # the test may have ended
                for answer in answers:
                    accepted.recv(65536)
                    accepted.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        address = Address("http", "127.0.0.1", listener.getsockname()[1])
        made = ServerConnection(address, context=CONTEXT, name="", timeout=20)
        yield made
        made.close()


@pytest.mark.parametrize(
    ("answer", "body", "kept"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", b"hello", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!", b"hello", False),
        (b"HTTP/1.1 100 Continue\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"hi", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde", True),
        (b"HTTP/1.1 200 OK\r\n\r\nto the end", b"to the end", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    ],
)
def test_framings(answer: bytes, body: bytes, kept: bool) -> None:
    with connected(answer) as connection:
        response = connection.request("GET", "/", [], None)
        assert response.body(100) == body
        assert response.kept == kept
        assert "a" not in response.headers


def test_the_response_to_head_has_no_body_and_keeps_the_connection() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nWarning: a\r\nWarning: b\r\n\r\n"
    with connected(head, head + b"hello") as connection:
        response = connection.request("HEAD", "/", [], None)
        assert (response.body(100), response.kept, response.headers["warning"]) == (b"", True, "a, b")
        assert connection.request("GET", "/", [], None).body(100) == b"hello"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 400_000,
    ],
)
def test_responses_that_cannot_be_read(answer: bytes) -> None:
    with connected(answer) as connection, pytest.raises(HttpError):
        connection.request("GET", "/", [], None).body(100)


def test_the_end_of_an_idle_connection_is_seen() -> None:
    with connected(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") as connection:
        connection.request("GET", "/", (), None).body(0)
        assert select.select([connection._socket], [], [], 30)[0], "the server closes it"
        assert connection.has_ended


@pytest.mark.parametrize(("method", "seen"), [("GET", 2), ("POST", 1), ("PATCH", 1)])
def test_only_reads_are_sent_again(method: str, seen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcome of a write without a response is not known."""
    sent: list[str] = []

    class Ended:
        has_ended = False

        def request(self, method: str, *_: object) -> ArrivingResponse:
            sent.append(method)
            raise Disconnected("the server closed it")

        def close(self) -> None:
            pass

    server = SimpleNamespace(url="https://a")
    transport = HttpTransport(cast("ClusterTarget", SimpleNamespace(server=server, plugin=None)))
    transport._local.connection = Ended()
    monkeypatch.setattr(transport, "_connect", Ended)
    monkeypatch.setattr(transport, "_request", lambda connection, method, *_: connection.request(method))
    monkeypatch.setattr(transport, "_explain", str)
    with pytest.raises(OperatorError):
        transport.send(method, "/", {}, b"")
    assert len(sent) == seen


def test_a_connection_that_was_closed_while_it_was_idle() -> None:
    with connected() as connection, pytest.raises((Disconnected, ConnectionError)):
        connection.request("GET", "/", [], None)


def test_lines_arrive_one_by_one_and_are_bounded() -> None:
    with connected(b"HTTP/1.1 200 OK\r\n\r\none\ntwo\n" + b"x" * 50) as connection:
        lines = list(connection.request("GET", "/", [], None).lines(20))
    assert lines[:2] == [b"one\n", b"two\n"]
    assert len(lines[2]) > 20


@pytest.mark.parametrize(("path", "value"), [("/a b", "x"), ("/a\r\nb", "x"), ("/", "x\r\ny: z"), ("/", "€")])
def test_requests_that_are_no_http(path: str, value: str) -> None:
    with connected(b"") as connection, pytest.raises(HttpError):
        connection.request("GET", path, [("User", value)], None)
