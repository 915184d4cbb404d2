"""Answers of other servers: of their kept connections, and of requests that httpx sends."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import trio

from kubechronicle.http.outgoing.errors import AskError, failed, is_broken, reason
from kubechronicle.http.outgoing.keep_alive import BadAnswer, Received
from kubechronicle.http.outgoing.pools import Target
from kubechronicle.http.wire.heads import check_fields

if TYPE_CHECKING:
    import httpx

COMPRESSED: Final = "the answer is compressed though that was not asked for"
LATE: Final = "no answer within the time-out"
UNUSABLE: Final = (trio.ClosedResourceError, OSError, ValueError)
"""Errors that httpx does not wrap: a pool that was closed meanwhile, sockets, invalid host names."""


Answer = Received


def answer_of(method: str, target: Target, found: Received) -> Answer:
    """Return an answer of a kept connection. AskError: it is compressed."""
    if "content-encoding" in found.headers and found.headers["content-encoding"].lower() != "identity":
        raise failed(method, target.url, COMPRESSED)
    return found


def unusable(method: str, target: Target, error: BadAnswer) -> AskError:
    """Return the error of an answer of a kept connection that cannot be used."""
    if error.late:
        return failed(method, target.url, LATE, timed_out=True)
    return failed(method, target.url, str(error), transient=error.broken)


async def send(
    transport: httpx.AsyncBaseTransport, method: str, url: str, fields: Mapping[str, str], body: bytes, *, limit: int
) -> Answer:
    """Send a request by httpx, and return its answer of ``limit`` bytes at most. Raises AskError."""
    import httpx  # it takes long to load, and few servers need it

    try:
        check_fields(fields.items())
        request = httpx.Request(method, url, headers=dict(fields), content=body or None)
        response = await transport.handle_async_request(request)
        async with aclosing(response):
            return await _read(method, url, response, limit)
    except (*UNUSABLE, httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise failed(method, url, reason(error), transient=is_broken(error)) from None


async def _read(method: str, url: str, response: httpx.Response, limit: int) -> Answer:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise failed(method, url, COMPRESSED)
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > limit:
            raise failed(method, url, f"the answer has more than {limit} bytes")
    return Answer(response.status_code, dict(response.headers), bytes(body))
