"""Filters at the edge: fields for browsers, and the rejection of requests while the server stops.

They are outermost, so that every answer passes them, and a filter that is switched off is not in the chain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import re2

from kubechronicle.http.handlers.drain import Drain
from kubechronicle.http.messages import HeaderList, Request, Response

Next = Callable[[Request], Awaitable[Response]]

CORS_FIELDS: Final = (
    ("access-control-allow-methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
    (
        "access-control-allow-headers",
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, "
        "If-Modified-Since",
    ),
    ("access-control-expose-headers", "Date"),
    ("access-control-allow-credentials", "true"),
)
RETRY_AFTER: Final = "5"
STOPPING: Final = b"The apiserver is shutting down, please try again later.\n"
ALWAYS_ANSWERED: Final = ("/readyz", "/livez", "/healthz", "/metrics")
"""Prefixes of paths that are answered while the server stops."""


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """``origins``: RE2 patterns of the origins that may use the API from a browser (CORS); none: no origin may.
    ``hsts``: directives of Strict-Transport-Security (RFC 6797).
    ``retry_after``: reject new requests while the server stops, until the running ones are answered."""

    origins: tuple[str, ...] = ()
    hsts: tuple[str, ...] = ()
    retry_after: bool = False


def build(settings: EdgeSettings, drain: Drain, following: Next) -> Next:
    """Return the application within the filters that are switched on."""
    if settings.origins:
        following = with_cors(settings.origins, following)
    if settings.hsts:
        following = with_fields([("strict-transport-security", "; ".join(settings.hsts))], following)
    if settings.retry_after:
        following = rejecting(drain, following)
    return following


def with_fields(fields: HeaderList, following: Next) -> Next:
    """Add fields to every answer."""
    added = list(fields)

    async def filtered(request: Request) -> Response:
        response = await following(request)
        response.headers.extend(added)
        return response

    return filtered


def with_cors(origins: Sequence[str], following: Next) -> Next:
    """Let scripts of these origins use the API (Fetch Standard §3.2). Preflight requests need no credential."""
    patterns = [re2.compile(origin) for origin in origins]

    async def filtered(request: Request) -> Response:
        origin = request.headers.get("origin")
        if not origin or not any(pattern.search(origin) for pattern in patterns):
            return await following(request)
        fields = [("access-control-allow-origin", origin), *CORS_FIELDS]
        if request.method == "OPTIONS":
            return Response(204, fields)
        response = await following(request)
        response.headers.extend(fields)
        return response

    return filtered


def rejecting(drain: Drain, following: Next) -> Next:
    """Answer 429 to new requests while the server stops, so that clients ask another one."""

    def filtered(request: Request) -> Awaitable[Response]:
        if request.path.startswith(ALWAYS_ANSWERED):
            return following(request)
        return rejected() if drain.rejecting else counted(request)

    async def counted(request: Request) -> Response:
        if request.websocket is not None or request.upgrade is not None:
            return await following(request)
        drain.enter()
        try:
            return await following(request)
        finally:
            drain.leave()

    async def rejected() -> Response:
        fields = [
            ("retry-after", RETRY_AFTER),
            ("content-type", "text/plain; charset=utf-8"),
            ("x-content-type-options", "nosniff"),
        ]
        return Response(429, fields, STOPPING)

    return filtered
