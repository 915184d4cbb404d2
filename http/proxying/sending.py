"""A client's request sent on to another server: its body as it arrives, while the head of the answer is awaited.

An error answer ends the sending of the body, because the server may not read the rest.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import trio

from kubechronicle.http.messages import Request
from kubechronicle.http.proxying.backend_request import BackendFailed, BackendHead, BackendRequest

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
