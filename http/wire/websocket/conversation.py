"""RFC 6455 conversations: the WebSocket face of an application, and the task that runs it.

Hypercorn's WSStream passes events in (``put``) and takes messages of the application (protocol.py). Extensions such as
compression are not negotiated: kube-apiserver negotiates none, and a frame does not bound the size of inflated data.

Invariant: after the end of a conversation, `receive` and `send` raise WebSocketClosed and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import trio
from wsproto.frame_protocol import CloseReason

from kubechronicle.http.messages import (
    ClientDisconnected,
    HeaderList,
    Push,
    Request,
    Response,
    WebSocketClosed,
)
from kubechronicle.http.wire.exchange import Host, close_iterator, encode_headers
from kubechronicle.http.wire.takeover import Takeover

AppSend = Callable[[Any], Awaitable[None]]
AppPut = Callable[[Any], Awaitable[None]]


class WebSocketExchange:
    """One conversation: ASGI events of Hypercorn on one side, messages.WebSocket on the other.

    ``request``: the handshake.
    ``subprotocols``: the client's offer.
    ``send``: passes a message of the application to Hypercorn.
    """

    def __init__(self, host: Host, request: Request, subprotocols: tuple[str, ...], send: AppSend) -> None:
        self.request = request
        self._host = host
        self._subprotocols = subprotocols
        self._send = send
        self._messages: deque[bytes | str] = deque()
        self._code: int | None = None
        self.takeover: Takeover | None = None
        self._accepted = False
        self._gone = False
        self._changed = trio.Event()

    # --- Hypercorn's side ---

    async def put(self, event: Any) -> None:
        if event["type"] == "websocket.disconnect":
            self._end(event["code"])
        elif event["type"] == "websocket.receive":
            text = event.get("text")
            self._messages.append(text if text is not None else event["bytes"])
            self._notify()
            while len(self._messages) >= self._host.limits.websocket_queue and not self._gone:
                await self._changed.wait()

    def disconnected(self) -> None:
        self._end(CloseReason.ABNORMAL_CLOSURE.value)

    def _end(self, code: int) -> None:
        if self._code is None:
            self._code = code
        self._gone = True
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

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
        if self.takeover is not None:
            self.takeover.possible = False
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
            await self._changed.wait()
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

    def body_at_once(self) -> bytes | None:
        return b""

    def limit(self, deadline: float) -> bool:
        return False

    @property
    def overdue(self) -> bool:
        return False

    async def wait_disconnect(self) -> None:
        """Return when the client is gone. Discards its messages, which have no meaning on a watch."""
        while not self._gone:
            self._messages.clear()
            self._notify()
            await self._changed.wait()

    @property
    def push(self) -> Push | None:
        return None

    # --- the task ---

    async def run(self) -> None:
        try:
            response = await self._call_application()
            if not self._gone and not self._taken_over:
                await self._finish(response)
        except (WebSocketClosed, ClientDisconnected):
            pass
        except Exception as error:  # an answer that cannot be sent
            self._host.report(f"answer to WebSocket {self.request.raw_path}", error)
        finally:
            self._host.finish_exchange(self)
        if self.takeover is not None and self._taken_over:
            await self.takeover.end()
        else:
            await self._send(None)

    @property
    def _taken_over(self) -> bool:
        return self.takeover is not None and self.takeover.taken

    async def _call_application(self) -> Response:
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
        if self.takeover is not None:
            self.takeover.possible = False
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
    """Send each chunk as one message of an accepted conversation until either side ends it (a watch).

    Closes the conversation and the iterator. The client's messages are discarded; its end cancels the iteration.
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
                    chunk = b""  # while it waits for the next one, it holds no object that may be erased
                await websocket.close()
            except WebSocketClosed:
                pass
            nursery.cancel_scope.cancel()
    finally:
        await close_iterator(chunks)


async def _cancel_when_gone(request: Request, scope: trio.CancelScope) -> None:
    await request.wait_disconnect()
    scope.cancel()
