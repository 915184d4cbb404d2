"""RFC 6455 conversations over HTTP/1.1, through Hypercorn's WSStream.

Lives here: the WebSocket face an application gets, and what WSStream leaves out: bytes that come before the handshake
is answered, the race of two closing handshakes, frames that break the protocol, a bound on messages waiting.
Extensions (compression) are not negotiated: kube-apiserver negotiates none, and inflating is not bounded by a frame.

Invariant: whatever ends a conversation, `receive` and `send` raise WebSocketClosed from then on and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import trio
from hypercorn.protocol.events import Body, Data, Event, StreamClosed
from hypercorn.protocol.events import Request as HandshakeRequest
from hypercorn.protocol.ws_stream import ASGIWebsocketState, FrameTooLargeError, WSStream
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Message, Ping
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from kubechronicle.http.messages import (
    ClientDisconnected,
    HeaderList,
    Headers,
    Push,
    Request,
    Response,
    WebSocketClosed,
)
from kubechronicle.http.wire.exchange import Host, close_iterator, encode_headers, split_target

AppSend = Callable[[Any], Awaitable[None]]
AppPut = Callable[[Any], Awaitable[None]]

EARLY_BYTES = 64 * 1024
"""Of frames sent before the handshake is answered: kept for a client in a hurry, more is refused."""


class EarlySafeWSStream(WSStream):
    """Hypercorn's stream, without the two ways in which a client's bytes could hang or end it."""

    _early = b""

    async def handle(self, event: Event) -> None:
        if isinstance(event, (Body, Data)):
            await self._receive(bytes(event.data))
        elif isinstance(event, StreamClosed) and self.closed and self.app_put is not None:
            await self.app_put({"type": "websocket.disconnect", "code": CloseReason.ABNORMAL_CLOSURE.value})
        else:
            await super().handle(event)
            if isinstance(event, HandshakeRequest) and self.closed:  # refused: not a handshake
                await self.send(StreamClosed(stream_id=self.stream_id))

    async def _receive(self, data: bytes) -> None:
        if self.closed or self.state in {ASGIWebsocketState.CLOSED, ASGIWebsocketState.HTTPCLOSED}:
            return  # after our close frame only the client's matters (RFC 6455 §7.1.2), and that ends the connection
        if not self.handshake.accepted:
            if len(self._early) + len(data) > EARLY_BYTES:
                await self.send(StreamClosed(stream_id=self.stream_id))
            self._early += data
        else:
            await self._receive_frames(data)

    async def _receive_frames(self, data: bytes) -> None:
        try:
            self.connection.receive_data(data)
            await self._handle_events()
        except (RemoteProtocolError, LocalProtocolError):
            await self._end(CloseConnection(code=CloseReason.PROTOCOL_ERROR))

    async def _handle_events(self) -> None:
        for event in self.connection.events():
            if isinstance(event, Message):
                try:
                    self.buffer.extend(event)
                except FrameTooLargeError:
                    await self._end(CloseConnection(code=CloseReason.MESSAGE_TOO_BIG))
                    return
                if event.message_finished and self.app_put is not None:
                    await self.app_put(self.buffer.to_message())
                    self.buffer.clear()
            elif isinstance(event, Ping):
                await self._send_wsproto_event(event.response())
            elif isinstance(event, CloseConnection):
                # The client's, to be returned to it, or one that names what is wrong with its frames.
                remote = self.connection.state is ConnectionState.REMOTE_CLOSING
                await self._end(event.response() if remote else CloseConnection(code=event.code))
                return

    async def _end(self, close: CloseConnection) -> None:
        await self._send_wsproto_event(close)
        await self.send(StreamClosed(stream_id=self.stream_id))

    async def _accept(self, message: Any) -> None:
        await super()._accept(message)
        early, self._early = self._early, b""
        if early:
            await self._receive_frames(early)


class WebSocketExchange:
    """One conversation: Hypercorn's task group on one side, messages.WebSocket on the other."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._messages: deque[bytes | str] = deque()
        self._code: int | None = None
        self._accepted = False
        self._gone = False
        self._news = trio.Event()
        self._send: AppSend
        self._subprotocols: tuple[str, ...] = ()
        self.request: Request

    # --- Hypercorn's side ---

    async def spawn_app(self, app: object, config: object, scope: Any, send: AppSend) -> AppPut:
        raw_path, query_string = split_target(scope["raw_path"] + b"?" + scope["query_string"])
        self._send = send
        self._subprotocols = tuple(scope["subprotocols"])
        self.request = Request(
            method="GET",
            raw_path=raw_path,
            query_string=query_string,
            headers=Headers.from_raw(scope["headers"]),
            exchange=self,
            client=scope["client"],
            peer_certificate=self._host.peer_certificate,
            peer_intermediates=self._host.peer_intermediates,
            http_version=scope["http_version"],
            draining=self._host.draining,
            websocket=self,
        )
        self._host.begin_exchange(self)
        self._host.start_task(self.run)
        return self.put

    def spawn(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        raise AssertionError("pings are not configured")

    async def put(self, event: Any) -> None:
        if event["type"] == "websocket.disconnect":
            self._end(event["code"])
        elif event["type"] == "websocket.receive":
            text = event.get("text")
            self._messages.append(text if text is not None else event["bytes"])
            self._notify()
            while len(self._messages) >= self._host.limits.websocket_queue and not self._gone:
                await self._news.wait()

    def disconnected(self) -> None:
        self._end(CloseReason.ABNORMAL_CLOSURE.value)

    def _end(self, code: int) -> None:
        if self._code is None:
            self._code = code
        self._gone = True
        self._notify()

    def _notify(self) -> None:
        news, self._news = self._news, trio.Event()
        news.set()

    # --- the application's side (messages.WebSocket, messages.Exchange) ---

    @property
    def subprotocols(self) -> tuple[str, ...]:
        return self._subprotocols

    def withdraw(self, prefix: str) -> None:
        self._subprotocols = tuple(each for each in self._subprotocols if not each.startswith(prefix))

    @property
    def accepted(self) -> bool:
        return self._accepted

    async def accept(self, subprotocol: str | None = None, headers: HeaderList = ()) -> None:
        if subprotocol is not None and subprotocol not in self._subprotocols:
            raise ValueError(f"the client does not offer the subprotocol {subprotocol}")
        self._raise_if_closed()
        self._accepted = True
        message = {"type": "websocket.accept", "subprotocol": subprotocol, "headers": encode_headers(headers)}
        await self._send(message)

    async def send(self, data: bytes | str) -> None:
        self._raise_if_closed()
        kind = "text" if isinstance(data, str) else "bytes"
        await self._send({"type": "websocket.send", kind: data})

    async def receive(self) -> bytes | str:
        while not self._messages:
            self._raise_if_closed()
            await self._news.wait()
        message = self._messages.popleft()
        self._notify()
        return message

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if self._code is not None:
            return
        self._code = code
        self._notify()
        await self._send({"type": "websocket.close", "code": code, "reason": reason})

    def _raise_if_closed(self) -> None:
        if self._code is not None:
            raise WebSocketClosed(self._code)

    async def receive_body(self) -> bytes:
        return b""

    def limit(self, deadline: float) -> bool:
        return False

    @property
    def overdue(self) -> bool:
        return False

    async def wait_disconnect(self) -> None:
        """Messages are discarded: what a client sends on a watch means nothing."""
        while not self._gone:
            self._messages.clear()
            self._notify()
            await self._news.wait()

    @property
    def push(self) -> Push | None:
        return None

    # --- the task ---

    async def run(self) -> None:
        try:
            response = await self._ask()
            if not self._gone:
                await self._finish(response)
        except (WebSocketClosed, ClientDisconnected):
            pass
        except Exception as error:  # an answer that cannot be sent
            self._host.report(f"answer to WebSocket {self.request.raw_path}", error)
        finally:
            self._host.finish_exchange(self)
        await self._send(None)

    async def _ask(self) -> Response:
        try:
            return await self._host.app(self.request)
        except (WebSocketClosed, ClientDisconnected):
            raise
        except Exception as error:  # the HTTP edge
            self._host.report(f"WebSocket {self.request.raw_path}", error)
            if self._accepted:
                await self.close(CloseReason.INTERNAL_ERROR.value)
            return Response(500)

    async def _finish(self, response: Response) -> None:
        if self._accepted:
            await self.close()
            return
        body = response.body
        if not isinstance(body, bytes):
            await close_iterator(body)
            body = b""
        headers = [*encode_headers(response.headers), (b"content-length", b"%d" % len(body))]
        await self._send({"type": "websocket.http.response.start", "status": response.status, "headers": headers})
        await self._send({"type": "websocket.http.response.body", "body": body})


async def send_stream(request: Request, chunks: AsyncIterator[bytes], *, text: bool) -> None:
    """Sends each chunk as one message of an accepted conversation until either side ends it (a watch).

    Closes the conversation and the iterator. A client's messages are discarded, its leaving cancels the iteration.
    """
    websocket = request.websocket
    if websocket is None:
        raise ValueError("not a WebSocket request")
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_gone, request, nursery.cancel_scope)
            try:
                async for chunk in chunks:
                    await websocket.send(chunk.decode() if text else chunk)
                await websocket.close()
            except WebSocketClosed:
                pass
            nursery.cancel_scope.cancel()
    finally:
        await close_iterator(chunks)


async def _cancel_when_gone(request: Request, scope: trio.CancelScope) -> None:
    await request.wait_disconnect()
    scope.cancel()
