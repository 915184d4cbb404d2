"""An exchange whose steps are ASGI events of Hypercorn's HTTPStream (HTTP/2).

Lives here: the translation and nothing else. An `AsgiExchange` stands where Hypercorn expects its task group: the
HTTPStream calls `spawn_app` once, feeds `put` with `http.request` and `http.disconnect`, and takes `http.response.*`
through the `send` it passed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kubechronicle.http.exchange import NO_BODY, Host, HttpExchange, split_target
from kubechronicle.http.messages import Headers, Push, Request

AppSend = Callable[[Any], Awaitable[None]]
AppPut = Callable[[Any], Awaitable[None]]


class AsgiExchange(HttpExchange):
    """`credit` is told how many body bytes were taken: HTTP/2's windows bound what is buffered here.
    `push` goes past Hypercorn's stream, which has no say in what a part of a body looks like."""

    def __init__(self, host: Host, credit: Callable[[int], Awaitable[None]], push: Push) -> None:
        super().__init__(host)
        self._credit = credit
        self._push = push
        self._send: AppSend

    @property
    def push(self) -> Push | None:
        return None if self.request.method == "HEAD" else self._push

    async def spawn_app(self, app: object, config: object, scope: Any, send: AppSend) -> AppPut:
        """Called by HTTPStream in place of its task group's."""
        raw_path, query_string = split_target(scope["raw_path"] + b"?" + scope["query_string"])
        self._send = send
        self.request = Request(
            method=scope["method"],
            raw_path=raw_path,
            query_string=query_string,
            headers=Headers.from_raw(scope["headers"]),
            exchange=self,
            client=scope["client"],
            peer_certificate=self._host.peer_certificate,
            peer_intermediates=self._host.peer_intermediates,
            http_version=scope["http_version"],
            scheme=scope["scheme"],
            draining=self._host.draining,
        )
        self._host.begin_exchange(self)
        self._host.start_task(self.run)
        return self.put

    def spawn(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        raise AssertionError("HTTPStream spawns nothing but the application")

    async def put(self, event: Any) -> None:
        if event["type"] == "http.disconnect":
            self.disconnected()
            return
        data: bytes = event["body"]
        if data and not self.feed(data):
            await self._consumed(len(data))
        if not event["more_body"]:
            self.feed_end()

    async def _consumed(self, size: int) -> None:
        await self._credit(size)

    async def _send_answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        if status not in NO_BODY:
            headers.append((b"content-length", b"%d" % len(body)))
        await self._send_head(status, headers)
        await self._send({"type": "http.response.body", "body": body})

    async def _send_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _send_chunk(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _send_end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def _finish(self) -> None:
        await self._send(None)
        del self._send  # which knows its stream, and that us: otherwise they would be the garbage collector's
