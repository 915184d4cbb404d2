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
from urllib.parse import quote

from kubechronicle.api.errors import status
from kubechronicle.http.messages import SWITCHED, Request, Response
from kubechronicle.http.outgoing.answers import SWITCHING_PROTOCOLS
from kubechronicle.http.proxying.answers import (
    CACHE_CONTROL,
    HOP_BY_HOP,
    PATH_CHARACTERS,
    LinkRewriter,
    answer_of,
    named_by_connection,
    passed_fields,
)
from kubechronicle.http.proxying.backend_request import BackendDrain, BackendFailed, Stream, close_now
from kubechronicle.http.proxying.dialing import BackendServer, DialError
from kubechronicle.http.proxying.kept_streams import KeptStreams
from kubechronicle.http.proxying.switching import (
    SwitchFailed,
    body_begin,
    pass_through,
    read_error,
    require_switch,
    send_request,
    switch,
)
from kubechronicle.http.streaming.pacing import paced


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
    request: Request, location: Location, drain: BackendDrain, kept: KeptStreams, *, session_rate: int = 0
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
        return await answer_of(asked, head, rewriter, drain)
    except (BackendFailed, DialError) as error:
        refused = _refused(error)
        raise refused or status.service_unavailable(f"error trying to reach service: {error}") from None


def _refused(error: Exception) -> status.StatusError | None:
    """Return the answer to a proxy whose address is itself a mistake, as kube-apiserver's ResourceLocation has it."""
    return status.bad_request(error.refused) if isinstance(error, DialError) and error.refused else None


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
    dropped |= named_by_connection(request.headers.get_all("connection"))
    yield "host", request.headers.get("host") or location.authority
    for name, value in request.headers:
        if name not in dropped:
            yield name, value


def _forwarded_for(request: Request) -> str:
    return ", ".join([*request.headers.get_all("x-forwarded-for"), request.client[0]])


async def _upgrade(request: Request, location: Location, rate: int) -> Response:
    """Pass an upgrade through: the head of the request, then raw bytes both ways. StatusError 400, 500."""
    assert request.upgrade is not None
    fields = [(name, value) for name, value in request.headers if name != "x-forwarded-for"]
    fields.append(("x-forwarded-for", _forwarded_for(request)))
    stream: Stream | None = None
    try:
        target = _target(location.path, request.query_string)
        stream, head = await switch(location.server, request.method, target, fields)
        require_switch(head)
        if head.status != SWITCHING_PROTOCOLS:
            return Response(head.status, passed_fields(head.fields), await read_error(stream, head))
        await pass_through(request.upgrade, paced(stream, rate), head, draining=request.draining)
    except DialError as error:
        raise _refused(error) or status.unknown(f"error dialing backend: {error}") from None
    except SwitchFailed as error:
        raise status.unknown(str(error)) from None
    finally:
        if stream is not None:
            close_now(stream)
    return SWITCHED
