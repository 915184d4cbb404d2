"""Upgrades of connections to others: the request, the head of the answer, and the bytes of both sides after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final, NamedTuple

import trio

from kubechronicle.http.messages import Request, Upgrade
from kubechronicle.http.outgoing.answers import SWITCHING_PROTOCOLS, AnswerError, AnswerReader
from kubechronicle.http.proxying.backend_request import BackendFailed, BackendHead, BackendRequest
from kubechronicle.http.proxying.dialing import BackendServer
from kubechronicle.http.streaming.copying import GONE, copy_both, receive_or_end
from kubechronicle.http.wire.heads import BadField, answer_lines, check_fields, request_lines
from kubechronicle.http.wire.tls import TLSStream

MAX_ERROR_BODY: Final = 1 << 20
"""Bytes of an answer that is no upgrade, with the framing of its body; the rest is dropped."""
ERROR_WAIT: Final = 10.0
"""Seconds for the rest of an answer that is no upgrade (kube-apiserver's upgrade proxy)."""


class SwitchFailed(Exception):
    """The peer closed the connection, or did not answer in HTTP."""


class SwitchedHead(NamedTuple):
    """The head of an answer. ``fields``: names in lower case. ``rest``: of an upgrade, the bytes received after it."""

    status: int
    fields: list[tuple[str, str]]
    rest: bytes
    answer: AnswerReader

    def get(self, name: str) -> str:
        """Return the first field of this name (in lower case), or ""."""
        return next((value for key, value in self.fields if key == name), "")


async def switch(
    server: BackendServer, method: str, target: str, fields: Iterable[tuple[str, str]]
) -> tuple[trio.abc.HalfCloseableStream | TLSStream, SwitchedHead]:
    """Ask a server for an upgrade. Return the connection and the head of the answer. Raises DialError, SwitchFailed."""
    try:
        request = request_lines(method, target, [*fields, *server.fields])
    except BadField as error:
        raise SwitchFailed(str(error)) from None
    stream = await server.dial()
    try:
        return stream, await send_upgrade(stream, request)
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise


def require_switch(head: SwitchedHead) -> None:
    """Raise SwitchFailed for an answer that is neither an upgrade nor an error."""
    if head.status < 400 and head.status != SWITCHING_PROTOCOLS:
        raise SwitchFailed(f"invalid upgrade response: status code {head.status}")


async def send_upgrade(stream: trio.abc.Stream, request: bytes) -> SwitchedHead:
    """Send the request, and return the head of the answer. Raises SwitchFailed."""
    try:
        await stream.send_all(request)
    except GONE as error:
        raise SwitchFailed(f"error sending request: {error}") from None
    answer = AnswerReader("GET")
    try:
        while not answer.status:
            await _receive(stream, answer)
        check_fields(answer.fields)
    except AnswerError as error:
        raise SwitchFailed(str(error)) from None
    except BadField as error:
        raise SwitchFailed(f"malformed HTTP response: {error}") from None
    return SwitchedHead(answer.status, answer.fields, answer.rest or b"", answer)


async def _receive(stream: trio.abc.Stream, answer: AnswerReader) -> int:
    """Take the next bytes of an answer, or its end. Return their number. AnswerError."""
    data = await receive_or_end(stream)
    if data:
        answer.feed(data)
    else:
        answer.end()
    return len(data)


async def pass_through(upgrade: Upgrade, stream: trio.abc.Stream, head: SwitchedHead, *, draining: trio.Event) -> None:
    """Give the client the answer that switches protocols, and copy the bytes of both sides until either ends."""
    client = await upgrade.take_over()
    with contextlib.suppress(*GONE):
        await client.send_all(answer_lines(head.status, head.fields) + head.rest)
        await copy_both(client, stream, draining=draining)


async def read_error(stream: trio.abc.Stream, head: SwitchedHead) -> bytes:
    """Return the body of an answer that is no upgrade, as far as it comes within bounds."""
    received, answer = 0, head.answer
    with trio.move_on_after(ERROR_WAIT), contextlib.suppress(AnswerError):
        while not answer.complete and received < MAX_ERROR_BODY:
            received += await _receive(stream, answer)
    answer.release()
    return answer.take()[:MAX_ERROR_BODY]


# -- sending -----------------------------------------------------------------------------------------------------------
#
# A client's request sent on to another server: its body as it arrives, while the head of the answer is awaited.
#
# An error answer ends the sending of the body, because the server may not read the rest.


BODY_WAIT: Final = 5.0
"""Seconds for the rest of a request's body after the head of a successful answer."""
BODILESS: Final = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
"""Methods without a body in HTTP/2, unless its length is declared."""


class BodyBegin(NamedTuple):
    """The first part of a body, b"" if there is none, and its declared length, "" if it is not known."""

    first: bytes
    length: str


async def body_begin(request: Request) -> BodyBegin:
    """Return the beginning of a request's body."""
    length = request.headers.get("content-length")
    if length == "0":
        return BodyBegin(b"", "0")
    if not length:
        is_http2 = request.http_version == "2"
        if request.method in BODILESS if is_http2 else "transfer-encoding" not in request.headers:
            return BodyBegin(b"", "")
    return BodyBegin(await request.exchange.receive_body(), length)


async def send_request(
    asked: BackendRequest, *, request: Request, body: BodyBegin, target: str, fields: list[tuple[str, str]]
) -> BackendHead:
    """Send a request, and return the head of its answer. Raises BackendFailed.

    ``target``: path and query. ``fields``: without those that frame the body.
    """
    first, length = body
    chunked = bool(first) and not length
    if length:
        fields = [*fields, ("content-length", length)]
    elif chunked:
        fields = [*fields, ("transfer-encoding", "chunked")]
    await asked.send_head(target, fields, whole=not first)
    if not first:
        return await asked.receive_head()
    return await _with_body(asked, request, first, chunked=chunked)


async def _with_body(asked: BackendRequest, request: Request, first: bytes, *, chunked: bool) -> BackendHead:
    sent = trio.Event()

    async def send_body() -> None:
        part = first
        try:
            while part:
                await asked.send_body_part(part, chunked=chunked)
                part = await request.exchange.receive_body()
            if chunked:
                await asked.send_body_part(b"", chunked=True)
            asked.end_body()
        except BackendFailed:
            pass  # the answer tells why
        sent.set()

    failure: BackendFailed | None = None
    head: BackendHead | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_body)
        nursery.start_soon(asked.end_vanished)
        try:
            head = await asked.receive_head()
        except BackendFailed as error:
            failure = error
        if head is not None and head.status < 300:
            with trio.move_on_after(BODY_WAIT):
                await sent.wait()
        nursery.cancel_scope.cancel()
    if head is None:
        raise failure or BackendFailed("EOF")
    return head
