"""The reverse proxy of nodes, pods and services: requests and answers as streams, upgrades as raw bytes.

Source: apimachinery util/proxy (UpgradeAwareHandler, Transport), net/http/httputil (ReverseProxy). As there: fields of
one connection are dropped, X-Forwarded-For is extended, X-Forwarded-Uri is set, fields for cross-origin requests are
dropped from answers, redirects and links lead through this server. Difference: the answer of a pod to an unfinished
body ends that body.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote

from kubechronicle.api.errors import status
from kubechronicle.http.messages import SWITCHED, Request, Response
from kubechronicle.http.proxying.backend_request import (
    AnswerHead,
    BackendFailed,
    BackendRequest,
    Drain,
    Stream,
    close_now,
)
from kubechronicle.http.proxying.dialing import BackendServer, DialError
from kubechronicle.http.proxying.kept_streams import KeptStreams
from kubechronicle.http.proxying.links import PATH_CHARACTERS, LinkRewriter
from kubechronicle.http.proxying.pages import is_page, rewritten_page
from kubechronicle.http.proxying.sending import body_begin, send_request
from kubechronicle.http.streaming.copying import copy_both
from kubechronicle.http.streaming.pacing import paced
from kubechronicle.http.streaming.switching import SwitchFailed, read_error, request_bytes, send_upgrade

HOP_BY_HOP: Final = frozenset(
    ("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade")
)  # fmt: skip
"""Fields of one connection (RFC 9110 §7.6.1)."""
OWN_FIELDS: Final = HOP_BY_HOP | {"date", "audit-id", "content-length"}
CACHE_CONTROL: Final = ("cache-control", "no-cache, private")
"""A field of every answer of kube-apiserver, even beside one of the proxied server."""
CROSS_ORIGIN: Final = "access-control-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The server to proxy to, and its name for it. ``path``: decoded, as it is asked for there."""

    scheme: str
    authority: str
    path: str
    server: BackendServer


def join_path(path: str) -> str:
    """Clean a path, and keep the slash at its end (JoinPreservingTrailingSlash).

    >>> join_path("/a/../b//c/"), join_path("")
    ('/b/c/', '')
    """
    if not path:
        return ""
    cleaned = posixpath.normpath("/" + path.lstrip("/"))
    return f"{cleaned}/" if path.endswith("/") and cleaned != "/" else cleaned


async def proxy(
    request: Request, location: Location, drain: Drain, kept: KeptStreams, *, session_rate: int = 0
) -> Response:
    """Send the request there, and return the answer. StatusError 500, 503.

    ``kept``: connections to use again. ``session_rate``: bytes a second of an upgraded connection; 0: no limit.
    """
    if request.upgrade is not None:
        return await _upgrade(request, location, session_rate)
    path = location.path
    if request.path.endswith("/") and not path.endswith("/"):
        path += "/"
    if not path and request.method in ("GET", "HEAD"):
        query = f"?{request.query_string}" if request.query_string else ""
        return Response(301, [CACHE_CONTROL, ("location", f"{request.raw_path}/{query}")])
    suffix = location.path
    if request.path.endswith("/") and not suffix.endswith("/"):
        suffix += "/"
    rewriter = LinkRewriter(
        prefix=request.path.removesuffix(suffix),
        server=location.authority,
        request_host=request.headers.get("host"),
    )
    body, target = await body_begin(request), _target(path, request.query_string)
    fields = [*_request_fields(request, location), *_forwarded_fields(request, target, rewriter.prefix)]
    send = partial(send_request, request=request, body=body, target=target, fields=fields)
    try:
        asked, head = await kept.ask(location.server, request.method, send, repeatable=not body.first)
    except (BackendFailed, DialError) as error:
        raise _unreachable(error) from None
    return await _answer(request, head, asked, drain, rewriter)


def _unreachable(error: Exception) -> status.StatusError:
    return status.service_unavailable(f"error trying to reach service: {error}")


def _target(path: str, query: str) -> str:
    target = quote(path or "/", safe=PATH_CHARACTERS)
    return f"{target}?{query}" if query else target


def _forwarded_fields(request: Request, target: str, prefix: str) -> Iterable[tuple[str, str]]:
    path = target.partition("?")[0]
    joined = posixpath.normpath(f"{prefix}/{path.lstrip('/')}")
    yield "x-forwarded-uri", f"{joined}/" if path.endswith("/") else joined
    yield "x-forwarded-for", _forwarded_for(request)


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
    request: Request, head: AnswerHead, asked: BackendRequest, drain: Drain, rewriter: LinkRewriter
) -> Response:
    """Return the answer for the client. It owns the request to the other server."""
    dropped = OWN_FIELDS | {name.strip().lower() for name in head.get("connection").split(",")}
    fields = [
        CACHE_CONTROL,
        *(
            (name, rewriter.url(value) if name == "location" else value)
            for name, value in head.fields
            if name not in dropped and not name.startswith(CROSS_ORIGIN)
        ),
    ]
    if request.method != "HEAD" and is_page(head):
        try:
            page = await rewritten_page(asked, head, rewriter)
        except BackendFailed as error:
            raise _unreachable(error) from None
        if page is not None:
            return Response(head.status, [field for field in fields if field[0] != "content-encoding"], page)
    if head.length is not None and head.status not in (204, 304):
        fields.append(("content-length", str(head.length)))
    whole = asked.whole_body()
    if whole is not None:
        return Response(head.status, fields, whole)
    body = asked.body()
    body.end_with(drain)
    return Response(head.status, fields, body)


async def _upgrade(request: Request, location: Location, rate: int) -> Response:
    """Pass an upgrade through: the head of the request, then raw bytes both ways. StatusError 500."""
    assert request.upgrade is not None
    fields = [(name, value) for name, value in request.headers if name != "x-forwarded-for"]
    fields.append(("x-forwarded-for", _forwarded_for(request)))
    sent = request_bytes(request.method, _target(location.path, request.query_string), fields)
    stream: Stream | None = None
    try:
        stream = await location.server.dial()
        head = await send_upgrade(stream, sent)
        if head.status != 101:
            if head.status < 400:
                raise status.unknown(f"invalid upgrade response: status code {head.status}")
            kept = [(name, value) for name, value in head.fields if name.lower() not in OWN_FIELDS]
            return Response(head.status, kept, await read_error(stream, head))
        client = await request.upgrade.take_over()
        lines = ["HTTP/1.1 101 Switching Protocols", *(f"{name}: {value}" for name, value in head.fields), "", ""]
        await client.send_all("\r\n".join(lines).encode("latin-1") + head.rest)
        await copy_both(client, paced(stream, rate), draining=request.draining)
    except DialError as error:
        raise status.unknown(f"error dialing backend: {error}") from None
    except SwitchFailed as error:
        raise status.unknown(str(error)) from None
    finally:
        if stream is not None:
            close_now(stream)
    return SWITCHED
