"""The reverse proxy of nodes, pods and services: requests and answers as streams, upgrades as raw bytes.

Source: apimachinery util/proxy (UpgradeAwareHandler, Transport), net/http/httputil (ReverseProxy). As there: fields of
one connection are dropped, X-Forwarded-For is extended, X-Forwarded-Uri is set, fields for cross-origin requests are
dropped from answers, redirects and links lead through this server. Differences: each request has a connection of its
own, and the answer of a pod to an unfinished body ends that body.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import trio

from kubechronicle.api.errors import status
from kubechronicle.http.messages import SWITCHED, Request, Response
from kubechronicle.http.proxying.backend_request import (
    AnswerBody,
    AnswerHead,
    BackendFailed,
    BackendRequest,
    Drain,
    Stream,
    close_now,
)
from kubechronicle.http.proxying.dialing import DialError
from kubechronicle.http.proxying.links import MAX_PAGE, LinkRewriter, unpacked
from kubechronicle.http.streaming.copying import copy_both
from kubechronicle.http.streaming.switching import SwitchFailed, read_error, request_bytes, send_upgrade

HOP_BY_HOP: Final = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade")
)  # fmt: skip
"""Fields of one connection (RFC 9110 §7.6.1)."""
OWN_FIELDS: Final = HOP_BY_HOP | {"date", "audit-id", "content-length"}
CROSS_ORIGIN: Final = "access-control-"
BODY_WAIT: Final = 5.0
"""Seconds for the rest of a request's body after the head of a successful answer."""
PATH_CHARACTERS: Final = "$&+,/:;=@~-_."
"""Characters that Go's net/url does not escape in a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The server to proxy to. ``path``: decoded, as it is asked for there. ``dial``: returns a stream, or DialError."""

    scheme: str
    authority: str
    path: str
    dial: Callable[[], Awaitable[Stream]]


def join_path(path: str) -> str:
    """Clean a path, and keep the slash at its end (JoinPreservingTrailingSlash).

    >>> join_path("/a/../b//c/"), join_path("")
    ('/b/c/', '')
    """
    if not path:
        return ""
    cleaned = posixpath.normpath("/" + path.lstrip("/"))
    return f"{cleaned}/" if path.endswith("/") and cleaned != "/" else cleaned


async def proxy(request: Request, location: Location, drain: Drain) -> Response:
    """Send the request there, and return the answer. StatusError 500, 503."""
    if request.upgrade is not None:
        return await _upgrade(request, location)
    path = location.path
    if request.path.endswith("/") and not path.endswith("/"):
        path += "/"
    if not path and request.method in ("GET", "HEAD"):
        query = f"?{request.query_string}" if request.query_string else ""
        return Response(301, [("location", f"{request.raw_path}/{query}")])
    suffix = location.path
    if request.path.endswith("/") and not suffix.endswith("/"):
        suffix += "/"
    rewriter = LinkRewriter(
        prefix=request.path.removesuffix(suffix),
        hosts=frozenset({location.authority, request.headers.get("host")}),
    )
    try:
        stream = await location.dial()
    except DialError as error:
        raise _unreachable(error) from None
    kept = False
    try:
        asked = BackendRequest(stream, method=request.method)
        head = await _ask(request, asked, _target(path, request.query_string), location, rewriter.prefix)
        body = asked.body()
        body.end_with(drain)
        kept = True
    except BackendFailed as error:
        raise _unreachable(error) from None
    finally:
        if not kept:
            close_now(stream)
    return await _answer(request, head, asked, body, rewriter)


def _unreachable(error: Exception) -> status.StatusError:
    return status.service_unavailable(f"error trying to reach service: {error}")


def _target(path: str, query: str) -> str:
    target = quote(path or "/", safe=PATH_CHARACTERS)
    return f"{target}?{query}" if query else target


async def _ask(request: Request, asked: BackendRequest, target: str, location: Location, prefix: str) -> AnswerHead:
    """Send the request, with its body as it arrives, and return the head of the answer. Raises BackendFailed."""
    first, length = await _body_begin(request)
    fields = list(_request_fields(request, location))
    joined = posixpath.normpath(f"{prefix}/{target.partition('?')[0].lstrip('/')}")
    slash = "/" if target.partition("?")[0].endswith("/") else ""
    fields += [
        ("x-forwarded-uri", joined + slash),
        ("x-forwarded-for", _forwarded_for(request)),
        ("connection", "close"),
    ]
    chunked = bool(first) and not length
    if length:
        fields.append(("content-length", length))
    elif chunked:
        fields.append(("transfer-encoding", "chunked"))
    await asked.send_head(target, fields)
    if not first:
        return await asked.receive_head()
    return await _ask_with_body(request, asked, first, chunked=chunked)


async def _ask_with_body(request: Request, asked: BackendRequest, first: bytes, *, chunked: bool) -> AnswerHead:
    """Send the body while the head of the answer is awaited. An error answer ends the sending."""
    sent = trio.Event()

    async def send_body() -> None:
        part = first
        try:
            while part:
                await asked.send_body_part(part, chunked=chunked)
                part = await request.exchange.receive_body()
            if chunked:
                await asked.send_body_part(b"", chunked=True)
        except BackendFailed:
            pass  # the answer tells why
        sent.set()

    failure: BackendFailed | None = None
    head: AnswerHead | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_body)
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


async def _body_begin(request: Request) -> tuple[bytes, str]:
    """Return the first part of the body, and its declared length."""
    length = request.headers.get("content-length")
    if length == "0" or (not length and request.http_version != "2" and "transfer-encoding" not in request.headers):
        return b"", "0" if length == "0" else ""
    if request.http_version == "2" and not length and request.method in ("GET", "HEAD", "DELETE", "OPTIONS"):
        return b"", ""
    return await request.exchange.receive_body(), length


def _request_fields(request: Request, location: Location) -> Iterable[tuple[str, str]]:
    dropped = HOP_BY_HOP | {"content-length", "expect", "x-forwarded-for", "x-forwarded-uri", "host"}
    listed = request.headers.get("connection")
    if listed:
        dropped |= {name.strip().lower() for name in listed.split(",")}
    yield "host", request.headers.get("host") or location.authority
    for name, value in request.headers:
        if name not in dropped:
            yield name, value


def _forwarded_for(request: Request) -> str:
    return ", ".join([*request.headers.get_all("x-forwarded-for"), request.client[0]])


async def _answer(
    request: Request, head: AnswerHead, asked: BackendRequest, body: AnswerBody, rewriter: LinkRewriter
) -> Response:
    dropped = OWN_FIELDS | {name.strip().lower() for name in head.get("connection").split(",")}
    fields = [
        (name, rewriter.url(value) if name == "location" else value)
        for name, value in head.fields
        if name not in dropped and not name.startswith(CROSS_ORIGIN)
    ]
    is_page = head.get("content-type").partition(";")[0].strip() == "text/html" and not head.get("location")
    if is_page and request.method != "HEAD":
        page = await _page(asked, head, rewriter)
        if page is not None:
            await body.aclose()
            fields = [(name, value) for name, value in fields if name != "content-encoding"]
            return Response(head.status, fields, page)
    if head.status in (204, 304) or head.length == 0:
        await body.aclose()
        return Response(head.status, fields)
    if head.length is not None:
        fields.append(("content-length", str(head.length)))
    return Response(head.status, fields, body)


async def _page(asked: BackendRequest, head: AnswerHead, rewriter: LinkRewriter) -> bytes | None:
    """Return the page with rewritten links; None if it is in an unknown encoding or too long, and nothing is read."""
    encoding = head.get("content-encoding")
    if encoding not in ("", "gzip", "deflate") or (head.length or 0) > MAX_PAGE:
        return None
    page = bytearray()
    try:
        while part := await asked.next_part():
            page += part
            if len(page) > MAX_PAGE:
                raise BackendFailed(f"the page is longer than {MAX_PAGE} bytes")
    except BackendFailed as error:
        raise _unreachable(error) from None
    text = unpacked(bytes(page), encoding)
    if text is None:
        raise _unreachable(BackendFailed("the page is damaged or too long"))
    return rewriter.page(text)


async def _upgrade(request: Request, location: Location) -> Response:
    """Pass an upgrade through: the head of the request, then raw bytes both ways. StatusError 500."""
    assert request.upgrade is not None
    fields = [(name, value) for name, value in request.headers if name != "x-forwarded-for"]
    fields.append(("x-forwarded-for", _forwarded_for(request)))
    sent = request_bytes(request.method, _target(location.path, request.query_string), fields)
    stream: Stream | None = None
    try:
        stream = await location.dial()
        head = await send_upgrade(stream, sent)
        if head.status != 101:
            if head.status < 400:
                raise status.unknown(f"invalid upgrade response: status code {head.status}")
            kept = [(name, value) for name, value in head.fields if name.lower() not in OWN_FIELDS]
            return Response(head.status, kept, await read_error(stream, head))
        client = await request.upgrade.take_over()
        lines = ["HTTP/1.1 101 Switching Protocols", *(f"{name}: {value}" for name, value in head.fields), "", ""]
        await client.send_all("\r\n".join(lines).encode("latin-1") + head.rest)
        await copy_both(client, stream, draining=request.draining)
    except (DialError, SwitchFailed) as error:
        raise status.unknown(str(error)) from None
    finally:
        if stream is not None:
            close_now(stream)
    return SWITCHED
