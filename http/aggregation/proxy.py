"""Proxying: a request for a group of another server is sent there, and the answer is passed on as it arrives.

    GET /apis/metrics.k8s.io/v1beta1/nodes     ->   https://10.96.3.4:443/apis/metrics.k8s.io/v1beta1/nodes
    Authorization: Bearer …                         X-Remote-User: alice, X-Remote-Group: …, X-Forwarded-For: …

The filters have authenticated, limited and authorized the request. Its body and the answer's are streams with back
pressure: a chunk is read when the one before it is sent. Source: kube-aggregator
``pkg/apiserver/handler_proxy.go``, apimachinery ``pkg/util/proxy``.
"""

from __future__ import annotations

import logging
import posixpath
import re
from collections.abc import Iterable
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

import trio

from kubechronicle.api.registry.api_services import ApiService
from kubechronicle.http.aggregation.backends import Backends
from kubechronicle.http.authentication.user import User
from kubechronicle.http.context import Context
from kubechronicle.http.headers import CURRENT, TRACEPARENT
from kubechronicle.http.messages import SWITCHED, Request, Response, Upgrade
from kubechronicle.http.outgoing.answers import SWITCHING_PROTOCOLS
from kubechronicle.http.outgoing.client import AskError
from kubechronicle.http.proxying.answers import (
    CACHE_CONTROL,
    HOP_BY_HOP,
    PATH_CHARACTERS,
    LinkRewriter,
    answer_of,
    named_by_connection,
    passed_fields,
)
from kubechronicle.http.proxying.backend_request import BackendDrain, BackendFailed, close_now
from kubechronicle.http.proxying.dialing import DialError
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

# -- upgrades ----------------------------------------------------------------------------------------------------------
#
# Upgraded requests to other servers (WebSockets, SPDY): bytes are copied both ways after the answer 101.
#
# An answer that is no upgrade is passed on with its body. Source: apimachinery ``pkg/util/proxy/upgradeaware.go``.

HEAD_TIMEOUT: Final = 60.0
"""Seconds for the connection and the head of the answer."""


async def upgraded(
    request: Request,
    upgrade: Upgrade,
    fields: list[tuple[str, str]],
    *,
    backends: Backends,
    api_service: ApiService,
    url: str,
    target: str,
) -> Response:
    """Converse with another server on behalf of the client. Raises AskError if there is no answer.

    ``url``: of the other server; ``target``: path and query.
    """
    asked = [*fields, ("connection", "Upgrade"), ("upgrade", upgrade.protocol)]
    try:
        with trio.fail_after(HEAD_TIMEOUT):
            server = await backends.server(api_service, url)
            stream, head = await switch(server, request.method, target, asked)
    except DialError as error:
        raise AskError(f"error dialing backend: {error}") from None
    except SwitchFailed as error:
        raise AskError(str(error)) from None
    except trio.TooSlowError:
        raise AskError("context deadline exceeded") from None
    try:
        require_switch(head)
        if head.status != SWITCHING_PROTOCOLS:
            return Response(head.status, passed_fields(head.fields), await read_error(stream, head))
        await pass_through(upgrade, stream, head, draining=request.draining)
        return SWITCHED
    except SwitchFailed as error:
        raise AskError(str(error)) from None
    finally:
        close_now(stream)


# -- proxy -------------------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

DISCOVERY_TIMEOUT: Final = 5.0
"""Seconds for a request for a resource list (k8s.io/apiserver: aggregatedDiscoveryTimeout)."""
TEXT: Final = ("content-type", "text/plain; charset=utf-8")
NOSNIFF: Final = ("x-content-type-options", "nosniff")
UNAVAILABLE: Final = "service unavailable"
REDIRECTED: Final = b"the backend attempted to redirect this request, which is not permitted"

REPLACED: Final = HOP_BY_HOP | {
    "host", "authorization", "x-remote-user", "x-remote-uid", "x-remote-group", "x-forwarded-uri", "x-forwarded-host",
    "x-forwarded-for", "x-forwarded-proto", "audit-id", "expect", "content-length",
}  # fmt: skip
REPLACED_PREFIXES: Final = ("x-remote-extra-", "impersonate-")
_WRONG_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_KEY_CHARACTERS: Final = frozenset("!#$&'*+-.^_`|~")


class Proxy:
    """Sends requests to other servers.

    ``backends``: their addresses and clients.
    ``rejects_redirects``: answer 502 instead of the redirect of another server.
    """

    def __init__(self, backends: Backends, *, rejects_redirects: bool = True) -> None:
        self._backends = backends
        self._rejects_redirects = rejects_redirects

    async def answer(
        self, request: Request, context: Context, api_service: ApiService, drain: BackendDrain, kept: KeptStreams
    ) -> Response:
        """Return the answer of the server behind an APIService, or 503 if there is none.

        ``drain``: ends streams. ``kept``: connections to use again.
        """
        assert api_service.service is not None
        if not api_service.available:
            return error_text(503, UNAVAILABLE)
        try:
            url = await self._backends.url(api_service.service)
        except ValueError as error:
            log.warning("%s: no address of another server: %s", api_service.name, error)
            return error_text(503, UNAVAILABLE)
        is_list = request.path.strip("/").count("/") == 2 and not context.info.is_resource
        with trio.move_on_after(DISCOVERY_TIMEOUT if is_list else float("inf")):
            if request.upgrade is not None:
                return await self._upgrade(request, context, api_service, url)
            return await self._forward(request, context, api_service, url, drain, kept)
        return error_text(503, "error trying to reach service: context deadline exceeded")

    async def _upgrade(self, request: Request, context: Context, api_service: ApiService, url: str) -> Response:
        assert request.upgrade is not None
        target = forwarded_target(request)
        try:
            return await upgraded(
                request,
                request.upgrade,
                forwarded_fields(request, context, url.removeprefix("https://")),
                backends=self._backends,
                api_service=api_service,
                url=url,
                target=target,
            )
        except AskError as error:
            return error_text(503, error.why)

    async def _forward(
        self,
        request: Request,
        context: Context,
        api_service: ApiService,
        url: str,
        drain: BackendDrain,
        kept: KeptStreams,
    ) -> Response:
        body, target, host = await body_begin(request), forwarded_target(request), url.removeprefix("https://")
        fields = forwarded_fields(request, context, host)
        send = partial(send_request, request=request, body=body, target=target, fields=fields)
        try:
            server = await self._backends.server(api_service, url)
            asked, head = await kept.ask(server, request.method, send, repeatable=not body.first)
        except (AskError, BackendFailed, DialError) as error:
            assert api_service.service is not None
            self._backends.failed(api_service.service, url)
            why = error.why if isinstance(error, AskError) else str(error)
            return error_text(503, f"error trying to reach service: {why}")
        if self._rejects_redirects and 300 <= head.status <= 399 and head.get("location"):
            asked.release()
            return Response(502, [TEXT, CACHE_CONTROL], REDIRECTED)
        rewriter = LinkRewriter(prefix="", server=host, request_host=host, origin=("https", host))
        try:
            return await answer_of(asked, head, rewriter, drain, cleanly=True)
        except BackendFailed as error:
            return error_text(503, f"error trying to reach service: {error}")


def forwarded_target(request: Request) -> str:
    """Return path and query for the other server. The path is the authorized one, encoded anew; the query is sorted.

    >>> forwarded_target(Request.of("GET", "/apis/g/v1/things%2Fx?b=1&a=2"))
    '/apis/g/v1/things/x?a=2&b=1'
    """
    path = quote(request.path, safe=PATH_CHARACTERS)
    if not request.query_string:
        return path
    # Go's url.ParseQuery: pairs with a semicolon or a wrong escape are left out.
    pairs = [each for each in request.query_string.split("&") if ";" not in each and not _WRONG_ESCAPE.search(each)]
    query = urlencode(sorted(parse_qsl("&".join(pairs), keep_blank_values=True), key=lambda pair: pair[0]))
    return f"{path}?{query}" if query else path


def forwarded_fields(request: Request, context: Context, host: str) -> list[tuple[str, str]]:
    """Return the fields for the other server: the client's, but for those about the user and the connection.

    ``host``: the other server's host and port.
    """
    headers = request.headers
    dropped = REPLACED | named_by_connection(headers.get_all("connection"))
    kept = [(name, value) for name, value in headers if name not in dropped and not name.startswith(REPLACED_PREFIXES)]
    forwarded = [*headers.get_all("x-forwarded-for"), *([request.client[0]] if request.client[0] else [])]
    kept += [("x-forwarded-for", ", ".join(forwarded))] if forwarded else []
    path = posixpath.normpath(quote(request.path, safe=PATH_CHARACTERS))
    kept += [
        ("x-forwarded-uri", f"{path}/" if request.path.endswith("/") and path != "/" else path),
        ("x-forwarded-host", host),
        ("x-forwarded-proto", "https"),
        ("audit-id", context.audit_id),
    ]
    if traceparent := CURRENT.get():
        kept = [field for field in kept if field[0] != TRACEPARENT] + [(TRACEPARENT, traceparent)]
    return [("host", host), *kept, *user_fields(context.user)]


def user_fields(user: User) -> list[tuple[str, str]]:
    """Return the fields in which a proxy names the user, as bytes of UTF-8 in latin-1.

    >>> user_fields(User(name="a", groups=("g",), extra={"example.com/Scope": ("x",)}))
    [('x-remote-user', 'a'), ('x-remote-group', 'g'), ('x-remote-extra-example.com%2FScope', 'x')]
    """
    fields = [("x-remote-user", user.name)]
    if user.uid:
        fields.append(("x-remote-uid", user.uid))
    fields += [("x-remote-group", group) for group in user.groups]
    fields += [(f"x-remote-extra-{_escaped_key(key)}", value) for key, values in user.extra.items() for value in values]
    return [(name, _wire(value)) for name, value in fields]


def _escaped_key(key: str) -> str:
    """Return a key with each byte that no field name may have as %XX (client-go: headerKeyEscape)."""
    return "".join(
        chr(byte) if (chr(byte).isalnum() and byte < 128) or chr(byte) in _KEY_CHARACTERS else f"%{byte:02X}"
        for byte in key.encode()
    )


def _wire(value: str) -> str:
    return value if value.isascii() else value.encode().decode("latin-1")


def error_text(code: int, text: str, fields: Iterable[tuple[str, str]] = ()) -> Response:
    """Return an error as Go's http.Error writes it."""
    return Response(code, [TEXT, NOSNIFF, CACHE_CONTROL, *fields], f"{text}\n".encode())
