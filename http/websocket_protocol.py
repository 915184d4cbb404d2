"""HTTP/1.1 on one connection: Hypercorn's h11 protocol with stricter framing and one write for each answer.

Lives here: what differs from Hypercorn's `H11Protocol`. No upgrade to HTTP/2 (TLS negotiates it), no guessing of it;
requests whose framing two parsers could read differently are refused (RFC 9112 §5.2, §6.3); an answer whose length is
known leaves in one write together with its header.

Invariant: requests of one connection are answered one after another, in the order received.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, cast

import h11
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, Data, EndBody, Request, Response
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import ConnectionState

from kubechronicle.http.asgi import HttpExchange, split_target
from kubechronicle.http.connection_host import ConnectionHost
from kubechronicle.http.websocket import EarlySafeWSStream, WebSocketExchange

CLOSE = (b"connection", b"close")
PHRASES = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}


class RefusedRequest(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def has_folded_line(received: bytes) -> bool:
    """Whether a header (up to the empty line, or as far as received) continues a field on the next line."""
    if b"\n " not in received and b"\n\t" not in received:
        return False
    head = received.partition(b"\r\n\r\n")[0]
    return b"\n " in head or b"\n\t" in head


def check_request(request: h11.Request) -> None:
    """Raises RefusedRequest for what h11 lets pass and a server must not (RFC 9112)."""
    if request.http_version not in (b"1.1", b"1.0"):
        raise RefusedRequest(505)
    if request.method == b"CONNECT":
        raise RefusedRequest(405)
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
        raise RefusedRequest(400)  # §6.3: a sign of request smuggling
    try:
        split_target(request.target)
    except ValueError as error:
        raise RefusedRequest(400) from error


def wants_websocket(request: h11.Request) -> bool:
    upgrade = connection = b""
    for name, value in request.headers:
        if name == b"upgrade":
            upgrade = value
        elif name == b"connection":
            connection += b"," + value
    if upgrade.lower() != b"websocket" or request.method != b"GET":
        return False
    return any(token.strip() == b"upgrade" for token in connection.lower().split(b","))


class Http1Protocol(H11Protocol):
    def __init__(self, host: ConnectionHost, config: Config, context: Any) -> None:
        super().__init__(
            cast(Any, None), config, context, cast(Any, None), ConnectionState({}), True, host.client, host.server,
            host.send,
        )  # fmt: skip
        self._host = host
        self._held: bytes | None = None
        self._gone = False

    @property
    def awaits_header(self) -> bool:
        """Between two requests, with a part of the next one's header received."""
        connection = self.connection
        return connection.their_state is h11.IDLE and bool(connection.trailing_data[0])

    def disconnected(self) -> None:
        """Sync part of the connection's end: the reader must not wait for an answer to be completed."""
        self._gone = True

    async def drain(self) -> None:
        """Close at once when idle; otherwise the answer under way says `connection: close`."""
        if self.stream is None:
            await self.send(Closed())

    # --- receiving ---

    async def _handle_events(self) -> None:
        while not self._gone:
            try:
                event = self._next_event()
            except h11.RemoteProtocolError as error:
                await self._refuse(error.error_status_hint)
                return
            except RefusedRequest as refused:
                await self._refuse(refused.status)
                return
            if event is h11.PAUSED:
                await self.can_read.clear()
                await self.can_read.wait()
            elif event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
                return
            elif isinstance(event, h11.Request):
                await self._begin(event)
            elif self.stream is None:
                return
            elif isinstance(event, h11.Data):
                await self.stream.handle(Body(stream_id=STREAM_ID, data=bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                await self.stream.handle(EndBody(stream_id=STREAM_ID))
            elif isinstance(event, Data):
                await self.stream.handle(event)

    def _next_event(self) -> Any:
        connection = self.connection
        if connection.their_state is h11.IDLE and has_folded_line(connection.trailing_data[0]):
            raise RefusedRequest(400)
        event = connection.next_event()
        if isinstance(event, h11.Request):
            check_request(event)
        return event

    async def _begin(self, request: h11.Request) -> None:
        await self.send(Updated(idle=False))
        if self.connection.they_are_waiting_for_100_continue:
            await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))
        await self._create_stream(request)

    async def _create_stream(self, request: h11.Request) -> None:
        headers = list(request.headers)
        if wants_websocket(request):
            headers = [item for item in headers if item[0] != b"sec-websocket-extensions"]
            conversation = WebSocketExchange(self._host)
            self.stream = EarlySafeWSStream(
                self.app, self.config, self.context, cast(Any, conversation), True, self.client, self.server,
                self.stream_send, STREAM_ID,
            )  # fmt: skip
            self.connection = H11WSConnection(cast(h11.Connection, self.connection))
        else:
            self.stream = HTTPStream(
                self.app, self.config, self.context, cast(Any, HttpExchange(self._host)), True, self.client,
                self.server, self.stream_send, STREAM_ID,
            )  # fmt: skip
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=headers,
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii"),
                raw_path=request.target,
                state=self.connection_state,
            )
        )

    async def _refuse(self, status: int) -> None:
        self._host.count_protocol_error()
        if self.connection.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            phrase = PHRASES.get(status, b"")
            text = b"%d %s" % (status, phrase)
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text)), CLOSE]
            response = h11.Response(status_code=status, headers=headers, reason=phrase)
            events = (response, h11.Data(data=text), h11.EndOfMessage())
            await self.send(RawData(data=b"".join(self.connection.send(event) for event in events)))
        await self.send(Closed())

    # --- sending ---

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, Response) and event.status_code >= 200:
            headers = event.headers + self.config.response_headers("h11")
            if self.context.terminated.is_set():
                headers.append(CLOSE)
            phrase = PHRASES.get(event.status_code, b"")
            head = self._encode(h11.Response(headers=headers, status_code=event.status_code, reason=phrase))
            if any(name == b"content-length" for name, _ in event.headers):
                self._held = head
            else:
                await self._send_raw(head)
        elif isinstance(event, Body):
            await self._send_raw(self._take_held() + self._encode(h11.Data(data=event.data)))
        elif isinstance(event, EndBody):
            await self._send_raw(self._take_held() + self._encode(h11.EndOfMessage()))
        else:
            await super().stream_send(event)

    def _take_held(self) -> bytes:
        held, self._held = self._held, None
        return held or b""

    def _encode(self, event: Any) -> bytes:
        try:
            return self.connection.send(event) or b""
        except h11.LocalProtocolError:
            # The reader has answered a broken request body with an error meanwhile.
            if self.connection.their_state is h11.ERROR or self._gone:
                return b""
            raise

    async def _send_raw(self, data: bytes) -> None:
        if data:
            await self.send(RawData(data=data))

    async def handle(self, event: Event) -> None:
        if isinstance(event, Closed):
            self._gone = True
            await self.can_read.set()
        await super().handle(event)
